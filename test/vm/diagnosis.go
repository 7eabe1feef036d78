package vm

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Diagnosis is what helps to find out why the machine does not do what it should: the ends of QEMU's log, of the
// console and, while the guest answers, of its journal.
func (v *VM) Diagnosis(ctx context.Context) string {
	const limit = 8192
	text := "QEMU has not been started"
	if v.qemu != nil {
		text = "QEMU:\n" + v.qemu.LogTail()
	}
	console, err := os.ReadFile(v.Console())
	text += fmt.Sprintf("\nconsole (error %v):\n%s", err, console[max(0, len(console)-limit):])
	if !v.running() {
		return text
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	journal, err := v.Exec(ctx, "journalctl", "--boot", "--no-pager", "--lines=200", "--output=short-monotonic")
	return text + fmt.Sprintf("\njournal (error %v):\n%s", err, journal)
}
