package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/hostfs"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of default-route.
const (
	DefaultRouteMissing    = "DefaultRouteMissing"
	DefaultRouteDown       = "DefaultRouteDown"
	GatewayUnreachable     = "GatewayUnreachable"
	DefaultRouteUnreadable = "DefaultRouteUnreadable"
)

// defaultRouteReasons are API.
var defaultRouteReasons = reasons.Table{
	{Name: DefaultRouteMissing, Severity: reasons.Fatal, Says: "the machine has no default route in its main table", Do: "see whether the DHCP client, the network's configuration or the routing daemon is in order"},
	{Name: DefaultRouteDown, Severity: reasons.Fatal, Says: "the machine has a default route, and no interface that it leads through works", Do: "look at the named interface: its cable, its switch port, its configuration"},
	{Name: GatewayUnreachable, Severity: reasons.Degraded, Says: "the gateway of a default route did not answer when the kernel asked for its hardware address", Do: "see whether the gateway is up, and whether the interface is in the right VLAN"},
	{Name: DefaultRouteUnreadable, Severity: reasons.Unknown, Says: "the machine's routes could not be read", Do: "see the message; the agent needs netlink sockets and the machine's network namespace"},
}

// DefaultRouteOptions configure default-route.
type DefaultRouteOptions struct {
	Families string `key:"families" doc:"which families need a default route: either is enough (any), one of them (ipv4, ipv6), or both" oneof:"any,ipv4,ipv6,both"`
	Required bool   `key:"required" doc:"a machine is at fault without a default route, also one that has no kubelet and has had no default route while the agent ran"`
}

// kubeletDir exists where a kubelet has ever run.
const kubeletDir = "/var/lib/kubelet"

// DefaultRoute is the check "default-route": does a packet for elsewhere leave this machine?
//
// It reads the default routes of the main table over rtnetlink, in the agent's network namespace, which must be the
// machine's (hostNetwork), the interfaces they lead through, and what the neighbour table says of their gateways. It
// sends nothing: a gateway is unreachable (NUD_FAILED) only once the kernel itself asked for it in vain.
//
// A machine that never had a default route while the agent ran, and that no kubelet ever ran on, may be meant to have
// none: there the check does not apply unless it is required. Two halves (0.0.0.0/1 and 128.0.0.0/1, as some VPNs set
// them) are no default route to it.
var DefaultRoute = probes.Define(probes.Kind{
	Name:        "default-route",
	Condition:   "fettle.dev/NetworkReady",
	Description: "Looks whether the main table has a default route through an interface that works, and whether its gateway answers; changes are seen at once.",
	Reasons:     defaultRouteReasons,
	Interval:    60 * time.Second,
	Timeout:     2 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 1},
	DependsOn:   []string{"interfaces"},
}, func() DefaultRouteOptions { return DefaultRouteOptions{Families: "any"} }, func(env probes.Env, o DefaultRouteOptions) probes.Probe {
	return &defaultRouteLook{host: env.Host, DefaultRouteOptions: o}
})

type defaultRouteLook struct {
	host *hostfs.Root
	DefaultRouteOptions
	had   bool                     // a default route was seen
	looks atomic.Pointer[interest] // Watch reads it
}

func (l *defaultRouteLook) Run(context.Context) health.Result {
	routes, err := readWays()
	if err != nil {
		return probes.Because(defaultRouteReasons, DefaultRouteUnreadable, "%v", err)
	}
	l.looks.Store(routesInterest(routes))
	l.had = l.had || len(routes) > 0
	if !l.had && !l.Required {
		switch _, err := l.host.Stat(kubeletDir); {
		case errors.Is(err, fs.ErrNotExist):
			return probes.NotApplicable("there is no default route, and %s does not exist", kubeletDir)
		case err != nil:
			return probes.Because(defaultRouteReasons, DefaultRouteUnreadable, "%v", err)
		}
	}
	return l.judge(routes)
}

// Watch has the check look when a default route, or an interface that one leads through, changes.
func (l *defaultRouteLook) Watch(ctx context.Context, look func()) {
	watch(ctx, subscribe, l.looks.Load, look)
}

func routesInterest(ways []way) *interest {
	in := &interest{}
	for _, w := range ways {
		in.links = append(in.links, w.through.index)
	}
	slices.Sort(in.links)
	return in
}

// way is a default route with what is known of it.
type way struct {
	defaultRoute
	through link
	// silent : the kernel asked for the gateway's hardware address and got no answer.
	silent bool
}

func readWays() ([]way, error) {
	routes, err := readDefaultRoutes()
	if err != nil {
		return nil, err
	}
	var ways []way
	for _, r := range routes {
		found, err := netlink.LinkByIndex(r.link)
		var gone netlink.LinkNotFoundError
		switch {
		case errors.As(err, &gone):
			continue // and its routes with it
		case err != nil:
			return nil, fmt.Errorf("read the interface of a default route: %w", err)
		}
		w := way{defaultRoute: r, through: linkFrom(found)}
		if r.gateway.IsValid() {
			state, err := neighbourState(r.link, r.gateway)
			if err != nil {
				return nil, err
			}
			w.silent = state == netlink.NUD_FAILED
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// works says why nothing gets out this way; "": it may.
func (w way) works() string {
	if _, words := w.through.works(); words != "" {
		return words
	}
	if w.dead {
		return "the kernel does not use the route through " + w.through.name
	}
	return ""
}

// judge says what the default routes come to.
func (o DefaultRouteOptions) judge(ways []way) health.Result {
	var down, silent, well []string
	for _, need := range o.needs() {
		have, works := false, false
		for _, w := range ways {
			if !slices.Contains(need, w.family) {
				continue
			}
			have = true
			switch words := w.works(); {
			case words != "":
				down = append(down, words)
			case w.silent:
				works = true
				silent = append(silent, fmt.Sprintf("the gateway %s of %s does not answer", w.gateway, w.through.name))
			default:
				works = true
				well = append(well, fmt.Sprintf("%s through %s", w.family, w.through.name))
			}
		}
		switch {
		case !have:
			return probes.Because(defaultRouteReasons, DefaultRouteMissing, "no default route for %s", either(need))
		case !works:
			return probes.Because(defaultRouteReasons, DefaultRouteDown, "no default route for %s works: %s", either(need), strings.Join(unique(down), "; "))
		}
	}
	if len(silent) > 0 {
		return probes.Because(defaultRouteReasons, GatewayUnreachable, "%s", strings.Join(unique(silent), "; "))
	}
	return probes.OK("default routes: %s", strings.Join(unique(well), ", "))
}

// needs are groups of families of which one must have a way out each.
func (o DefaultRouteOptions) needs() [][]family {
	switch o.Families {
	case "ipv4":
		return [][]family{{ipv4}}
	case "ipv6":
		return [][]family{{ipv6}}
	case "both":
		return [][]family{{ipv4}, {ipv6}}
	default:
		return [][]family{{ipv4, ipv6}}
	}
}

func either(families []family) string {
	words := make([]string, 0, len(families))
	for _, f := range families {
		words = append(words, f.String())
	}
	return strings.Join(words, " or ")
}
