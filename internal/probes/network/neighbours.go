package network

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// neighbourState is what the kernel's neighbour table says of an address on an interface, e.g. netlink.NUD_REACHABLE; 0
// when it says nothing. The one entry is asked for; the table of a large flat network has thousands.
func neighbourState(index int, ip netip.Addr) (int, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	request.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(index)})
	request.AddData(nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()))
	messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENETDOWN):
		return 0, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return 0, nil // kernels before 5.0 cannot be asked for one entry
	case err != nil:
		return 0, fmt.Errorf("read the neighbour table: %w", err)
	case len(messages) == 0:
		return 0, nil
	}
	entry, err := netlink.NeighDeserialize(messages[0])
	if err != nil {
		return 0, fmt.Errorf("read the neighbour table: %w", err)
	}
	return entry.State, nil
}
