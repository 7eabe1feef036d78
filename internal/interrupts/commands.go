package interrupts

import "fmt"

// Command is one command of an interrupt, run on the host.
type Command struct {
	// Name is what its flag and log files are named after.
	Name string
	Argv []string
	// Service that has to stand afterwards; empty for none.
	Service string
}

// Commands of an interrupt that restarts services, in their order. A reboot has none: it is asked of logind.
func Commands(kind string, services []string) []Command {
	switch kind {
	case "service":
		all := []Command{{Name: "service_restart_0", Argv: []string{"systemctl", "daemon-reload"}}}
		for i, service := range services {
			all = append(all, Command{Name: fmt.Sprintf("service_restart_%d", i+1), Argv: []string{"systemctl", "restart", service}, Service: service})
		}
		return all
	case "restartAllServices":
		return []Command{{Name: "restart_all_services_0", Argv: []string{"service", "procps", "force-reload"}}}
	}
	return nil
}
