// Package child starts processes for an agent that must not be harmed by them, and leaves nothing of them behind.
//
// A command runs in a session of its own, with its output capped. When it ends, or must end, its whole process group is
// killed; with Adopt, so is what fled from the group. What survives its killing is stuck in a call to the kernel: that
// is an outcome too, and no second process is started for the same purpose while it lives.
//
// Nothing is executed from the agent's own process. It starts itself under another name (see Early), and that process
// becomes the command: executing a file on a dead mount does not return, and would otherwise hold up every later start
// in the whole agent. It also makes itself the first to be killed for memory before it becomes the command.
//
// The package knows nothing of checks.
package child
