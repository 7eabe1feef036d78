// Package interrupts decides how a host is interrupted: rebooted, or its services restarted.
//
// A reboot is the one act whose success cannot be seen by who asked for it. So an intent is durable before it is asked for,
// and it is proven by another boot ID afterwards, at the latest at the next start of the agent. One request comes to one
// reboot at most, whenever the process dies and whoever else reboots the host.
//
// The decisions are pure; packages/runner talks to logind and systemd.
package interrupts
