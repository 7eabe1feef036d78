package main

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// forkCount counts the processes, not threads, that each process forks, by the kernel's own word: its process events
// connector (Documentation/driver-api/connector.rst).
type forkCount struct {
	done    chan struct{}
	counted chan tally
}

// tally is how many processes each process forked, and how many reports of the kernel were lost.
type tally struct {
	byParent map[int]int
	lost     int
}

func watchForks() (*forkCount, error) {
	events, errs := make(chan netlink.ProcEvent, 4096), make(chan error, 16)
	f := &forkCount{done: make(chan struct{}), counted: make(chan tally, 1)}
	if err := netlink.ProcEventMonitor(events, f.done, errs); err != nil {
		return nil, fmt.Errorf("subscribe to the kernel's process events: %w", err)
	}
	go func() {
		counts := tally{byParent: map[int]int{}}
		for {
			select {
			case e := <-events:
				if fork, ok := e.Msg.(*netlink.ForkProcEvent); ok && fork.ChildPid == fork.ChildTgid {
					counts.byParent[int(fork.ParentTgid)]++
				}
			case err := <-errs:
				if err != nil {
					counts.lost++
				}
			case <-f.done:
				f.counted <- counts
				return
			}
		}
	}()
	return f, nil
}

// end stops counting.
func (f *forkCount) end() tally {
	close(f.done)
	return <-f.counted
}
