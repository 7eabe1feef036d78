package machines

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/fettle-dev/fettle/test/process"
)

// holdScript is the first process of the machine's namespaces. It mounts the machine's root and then stays: the
// mounts and all processes go when it goes. systemd-nspawn keeps files under /run by the machine's name, which another
// test may use too, so it gets a place of its own for them. Where the temporary folder cannot be the upper layer of an overlay, the
// root is copied. sh waits rather than execs so that it reaps what the machine leaves it.
const holdScript = `
cd "$1" && mkdir upper work root || exit
mkdir -p /run/systemd/nspawn && mount -t tmpfs nspawn /run/systemd/nspawn || exit
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" root || cp -a --reflink=auto "$2/." root || exit
: > held
sleep infinity & wait`

func (m *Machine) hold(ctx context.Context, root string) (err error) {
	m.holder, err = process.Start(process.Spec{
		// --kill-child: the kernel signals only our own child when we are killed, which is unshare.
		Command: []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", holdScript, "sh", m.folder.Path(), root},
		Log:     m.folder.Join("holder.log"),
	})
	if err != nil {
		return err
	}
	err = poll(ctx, "the machine's root is mounted", func() (bool, error) {
		_, err := os.Stat(m.folder.Join("held"))
		return err == nil, m.holder.Failure()
	})
	if err != nil {
		return err
	}
	children, err := childrenOf(m.holder.PID())
	if err != nil || len(children) != 1 {
		return fmt.Errorf("find the first process of the machine's namespaces: %v, %w", children, err)
	}
	m.anchor = children[0]
	return nil
}

func (m *Machine) notifySocket() *net.UnixAddr {
	return &net.UnixAddr{Net: "unixgram", Name: m.folder.Join("notify")}
}

// listen notes that systemd in the machine has finished its start, which it says itself. Asking it instead would put
// a process into the machine's PID namespace; when that is there at a shutdown, systemd-shutdown waits for it for
// 10 seconds, although it has ended, because its parent is outside and no SIGCHLD comes.
func (m *Machine) listen() {
	message := make([]byte, 4096)
	for {
		n, err := m.notify.Read(message)
		if err != nil {
			return // closed
		}
		if slices.Contains(strings.Split(string(message[:n]), "\n"), "READY=1") {
			m.mu.Lock()
			m.ready = true
			m.mu.Unlock()
		}
	}
}

// root is the machine's root file system in the holder's mount namespace.
func (m *Machine) root() string { return m.folder.Join("root") }
