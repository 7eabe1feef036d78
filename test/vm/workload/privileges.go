package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/dbus"
)

// attempts are what the DaemonSet's pod must be able to do, and what it must not.
var attempts = []struct {
	name string
	do   func(ctx context.Context) error
}{
	{"read a file of the host", reads("/host/etc/os-release")},
	{"read a file of the host that only root may read", reads("/host/etc/kubernetes/kubelet.conf")},
	{"read the mount table of the host's init", reads("/host/proc/1/mountinfo")},
	{"read the ServiceAccount's token", reads("/var/run/secrets/kubernetes.io/serviceaccount/token")},
	{"read the configuration", reads("/etc/fettle/nodeagent.yaml")},
	{"see the host's network interfaces", func(context.Context) error {
		_, err := net.InterfaceByName("eth0")
		return err
	}},
	{"write the state folder", func(context.Context) error { return writes("/var/lib/fettle/attempt") }},
	{"start a unit through the host's D-Bus", startUnit},
	{"hold no capability", holdsNone},
	{"be refused to write the host", refused("/host/etc/attempt")},
	{"be refused to write the image", refused("/attempt")},
	{"be refused to write beside the D-Bus socket", refused("/run/dbus/attempt")},
}

// try makes all attempts and prints "ok" or why not for each; it says whether all went as they must.
func try(ctx context.Context, out io.Writer) (all bool) {
	all = true
	for _, attempt := range attempts {
		verdict := "ok"
		if err := attempt.do(ctx); err != nil {
			all, verdict = false, err.Error()
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", attempt.name, verdict); err != nil {
			return false // nobody reads it
		}
	}
	return all
}

func reads(path string) func(context.Context) error {
	return func(context.Context) error {
		content, err := os.ReadFile(path)
		if err == nil && len(content) == 0 {
			return errors.New("it is empty")
		}
		return err
	}
}

func writes(path string) error {
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return err
	}
	return os.Remove(path)
}

// holdsNone looks at the bounding set too, from which capabilities could be got back.
func holdsNone(context.Context) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
		if !strings.Contains(string(status), "\n"+set+":\t0000000000000000\n") {
			return fmt.Errorf("the set %s in /proc/self/status is not empty", set)
		}
	}
	return nil
}

func refused(path string) func(context.Context) error {
	return func(context.Context) error {
		switch err := writes(path); {
		case err == nil:
			return fmt.Errorf("%s could be written", path)
		case !errors.Is(err, syscall.EROFS):
			return fmt.Errorf("want a read-only file system: %w", err)
		}
		return nil
	}
}

// startUnit runs a command on the host as a transient unit and waits for systemd's verdict.
func startUnit(ctx context.Context) error {
	conn, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	result := make(chan string, 1)
	properties := []dbus.Property{dbus.PropType("oneshot"), dbus.PropExecStart([]string{"/bin/true"}, false)}
	if _, err := conn.StartTransientUnitContext(ctx, "fettle-workload-attempt.service", "fail", properties, result); err != nil {
		return err
	}
	select {
	case verdict := <-result:
		if verdict != "done" {
			return fmt.Errorf("the job ended as %q, want done", verdict)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
