package network

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fettle-dev/fettle/internal/health"
	"github.com/fettle-dev/fettle/internal/probes"
	"github.com/fettle-dev/fettle/internal/reasons"
)

// Reasons of interfaces.
const (
	LoopbackDown            = "LoopbackDown"
	InterfaceMissing        = "InterfaceMissing"
	InterfaceDown           = "InterfaceDown"
	InterfaceNoCarrier      = "InterfaceNoCarrier"
	InterfaceNoAddress      = "InterfaceNoAddress"
	InterfaceRedundancyLost = "InterfaceRedundancyLost"
	BondDegraded            = "BondDegraded"
	InterfacesUnreadable    = "InterfacesUnreadable"
)

// interfacesReasons are API.
var interfacesReasons = reasons.Table{
	{Name: LoopbackDown, Severity: reasons.Fatal, Says: "the loopback interface is not there, is down or lacks 127.0.0.1", Do: "bring it up: ip link set lo up; the address comes by itself"},
	{Name: InterfaceMissing, Severity: reasons.Fatal, Says: "a network interface that the machine needs does not exist", Do: "see whether its driver is loaded, whether it has another name since an update, and whether the card is still there (lspci)"},
	{Name: InterfaceDown, Severity: reasons.Fatal, Says: "a network interface that the machine needs is switched off or not let into the network", Do: "bring it up: ip link set NAME up; a dormant one waits for its 802.1X authentication"},
	{Name: InterfaceNoCarrier, Severity: reasons.Fatal, Says: "a network interface that the machine needs has no carrier", Do: "look at the cable, the transceiver and the switch's port"},
	{Name: InterfaceNoAddress, Severity: reasons.Fatal, Says: "a network interface that the machine needs has no address", Do: "see whether the DHCP client or the network's configuration is in order"},
	{Name: InterfaceRedundancyLost, Severity: reasons.Degraded, Says: "of several network interfaces with a default route at least one does not work", Do: "see the message for which and why"},
	{Name: BondDegraded, Severity: reasons.Degraded, Says: "a bond runs on fewer members than it has", Do: "look at the named member's cable, transceiver and switch port, and at /proc/net/bonding"},
	{Name: InterfacesUnreadable, Severity: reasons.Unknown, Says: "the machine's network interfaces could not be listed", Do: "see the message; the agent needs netlink sockets and the machine's network namespace"},
}

// InterfacesOptions configure interfaces.
type InterfacesOptions struct {
	Interfaces   []string `key:"interfaces" doc:"names of interfaces that the machine needs, or patterns such as ens[0-9]f?; each must match one"`
	DefaultRoute bool     `key:"defaultRoute" doc:"the machine also needs the interfaces that carry a default route"`
	Addresses    bool     `key:"addresses" doc:"an interface without an address beyond its own wire is at fault, unless it is a member of a bond or bridge"`
}

// Validate reports patterns that are none.
func (o InterfacesOptions) Validate(fault func(what, allowed string, keys ...string)) {
	for i, pattern := range o.Interfaces {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			fault(fmt.Sprintf("%q is not a pattern", pattern), "a name, or a pattern with *, ? and [ ]", fmt.Sprintf("interfaces[%d]", i))
		}
	}
}

// Interfaces is the check "interfaces": do the network interfaces work that the machine cannot do without?
//
// It reads links and addresses over rtnetlink, in the agent's network namespace, which must be the machine's
// (hostNetwork). Beside the loopback and what is configured it looks at interfaces that carry a default route, and
// remembers them: when one goes down the kernel takes its routes away, and it must not be forgotten for that. What pods
// bring along (veth, bridges) is not looked at unless it is configured.
//
// Of several interfaces with a default route one that works is enough, the others make the check Degraded.
//
// An interface may be without an address of its own where the loopback has one for it, as on machines that speak BGP over
// unnumbered links.
var Interfaces = probes.Define(probes.Kind{
	Name:        "interfaces",
	Condition:   "fettle.dev/NetworkReady",
	Description: "Looks whether the loopback, the interfaces with a default route and the configured ones are up and have a carrier and an address; changes are seen at once.",
	Reasons:     interfacesReasons,
	Interval:    60 * time.Second,
	Timeout:     2 * time.Second,
	Thresholds:  health.Thresholds{Failure: 2, Success: 2},
}, func() InterfacesOptions {
	return InterfacesOptions{DefaultRoute: true, Addresses: true}
}, func(_ probes.Env, o InterfacesOptions) probes.Probe { return &interfacesLook{InterfacesOptions: o} })

type interfacesLook struct {
	InterfacesOptions
	uplinks []string
	looks   atomic.Pointer[interest] // Watch reads it
}

func (l *interfacesLook) Run(context.Context) health.Result {
	var routes []defaultRoute
	var err error
	if l.DefaultRoute {
		if routes, err = readDefaultRoutes(); err != nil {
			return probes.Because(interfacesReasons, InterfacesUnreadable, "%v", err)
		}
	}
	links, err := readLinks(func(index int, name string) bool {
		return slices.ContainsFunc(routes, func(r defaultRoute) bool { return r.link == index }) || l.needs(name, l.uplinks)
	})
	if err != nil {
		return probes.Because(interfacesReasons, InterfacesUnreadable, "%v", err)
	}
	l.uplinks = uplinks(l.uplinks, links, routes)
	l.looks.Store(l.interest(links, l.uplinks))
	return l.judge(links, l.uplinks)
}

// Watch has the check look when an interface it looks at, or a default route, changes.
func (l *interfacesLook) Watch(ctx context.Context, look func()) {
	watch(ctx, subscribe, l.looks.Load, look)
}

// uplinks are the names of interfaces with a default route, sorted; those of the look before when there is no default
// route left.
func uplinks(before []string, links []link, routes []defaultRoute) []string {
	var names []string
	for _, r := range routes {
		if at := slices.IndexFunc(links, func(l link) bool { return l.index == r.link }); at >= 0 {
			names = append(names, links[at].name)
		}
	}
	if len(names) == 0 {
		return before
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// needs says whether the machine needs an interface of that name.
func (o InterfacesOptions) needs(name string, uplinks []string) bool {
	return slices.Contains(uplinks, name) || slices.ContainsFunc(o.Interfaces, func(pattern string) bool { return matches(pattern, name) })
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // a pattern that is none was refused before
	return ok
}

func (o InterfacesOptions) interest(links []link, uplinks []string) *interest {
	in := &interest{named: func(name string) bool { return o.needs(name, uplinks) }}
	for _, l := range links {
		if l.loopback || o.needs(l.name, uplinks) {
			in.links = append(in.links, l.index)
			for _, below := range beneath(links, l) {
				in.links = append(in.links, below.index)
			}
		}
	}
	slices.Sort(in.links)
	return in
}

// beneath are the interfaces that one rests on: a VLAN's parent, the members of a bond, and so on down.
func beneath(links []link, top link) []link {
	found, seen := []link{}, []int{top.index}
	for todo := []link{top}; len(todo) > 0; {
		over := todo[0]
		todo = todo[1:]
		for _, l := range links {
			// Of a bridge's ports most are of pods, and one that is down may be meant to.
			member := l.master == over.index && (over.kind == "bond" || l.kind == "bond" || l.parent != 0)
			if (member || l.index == over.parent) && !slices.Contains(seen, l.index) {
				found, seen, todo = append(found, l), append(seen, l.index), append(todo, l)
			}
		}
	}
	return found
}

// fault is one thing wrong with an interface.
type fault struct{ reason, words string }

// judge says what the machine's interfaces come to. uplinks are the names of those with a default route.
func (o InterfacesOptions) judge(links []link, uplinks []string) health.Result {
	faults := slices.Concat(o.judgeLoopback(links), o.judgeConfigured(links), o.judgeUplinks(links, uplinks), o.judgeBonds(links, uplinks))
	if len(faults) == 0 {
		looked := slices.Concat([]string{"the loopback"}, uplinks, o.Interfaces)
		return probes.OK("in operation: %s", strings.Join(unique(looked), ", "))
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return severity(b) - severity(a) })
	words := make([]string, 0, len(faults))
	for _, f := range faults {
		words = append(words, f.words)
	}
	return probes.Because(interfacesReasons, faults[0].reason, "%s", strings.Join(unique(words), "; "))
}

func severity(f fault) int {
	if interfacesReasons.Find(f.reason).Severity == reasons.Fatal {
		return 1
	}
	return 0
}

// unique keeps the first of equal texts.
func unique(texts []string) []string {
	var kept []string
	for _, t := range texts {
		if !slices.Contains(kept, t) {
			kept = append(kept, t)
		}
	}
	return kept
}

var localhost = netip.MustParseAddr("127.0.0.1")

func (InterfacesOptions) judgeLoopback(links []link) []fault {
	at := slices.IndexFunc(links, func(l link) bool { return l.loopback })
	switch {
	case at < 0:
		return []fault{{LoopbackDown, "there is no loopback interface"}}
	case !links[at].up:
		return []fault{{LoopbackDown, links[at].name + " is down"}}
	case !slices.ContainsFunc(links[at].addresses, func(p netip.Prefix) bool { return p.Addr() == localhost || p.Contains(localhost) }):
		return []fault{{LoopbackDown, links[at].name + " has no 127.0.0.1"}}
	}
	return nil
}

// judgeConfigured wants every configured interface to work.
func (o InterfacesOptions) judgeConfigured(links []link) (faults []fault) {
	for _, pattern := range o.Interfaces {
		found := false
		for _, l := range links {
			if matches(pattern, l.name) {
				found = true
				faults = append(faults, o.judgeLink(links, l)...)
			}
		}
		if !found {
			faults = append(faults, fault{InterfaceMissing, "there is no interface " + pattern})
		}
	}
	return faults
}

// judgeUplinks wants one of the interfaces with a default route to work.
func (o InterfacesOptions) judgeUplinks(links []link, uplinks []string) (faults []fault) {
	bad := 0
	for _, name := range uplinks {
		wrong := []fault{{InterfaceMissing, "the interface " + name + ", which had a default route, is gone"}}
		if at := slices.IndexFunc(links, func(l link) bool { return l.name == name }); at >= 0 {
			wrong = o.judgeLink(links, links[at])
		}
		if len(wrong) > 0 {
			bad++
		}
		faults = append(faults, wrong...)
	}
	if bad < len(uplinks) {
		for i := range faults {
			faults[i].reason = InterfaceRedundancyLost
		}
	}
	return faults
}

func (o InterfacesOptions) judgeLink(links []link, l link) []fault {
	if reason, words := l.works(); reason != "" {
		return []fault{{reason, words}}
	}
	addressed := l.global() || (len(l.addresses) > 0 && unnumbered(links))
	if o.Addresses && l.master == 0 && !l.loopback && !addressed {
		return []fault{{InterfaceNoAddress, l.name + " has no address"}}
	}
	return nil
}

// unnumbered says whether the loopback has an address for interfaces that have none of their own.
func unnumbered(links []link) bool {
	return slices.ContainsFunc(links, func(l link) bool { return l.loopback && l.global() })
}

// judgeBonds looks at every bond that is needed, also one that a needed VLAN or bridge rests on.
func (o InterfacesOptions) judgeBonds(links []link, uplinks []string) (faults []fault) {
	for _, l := range links {
		if !o.needs(l.name, uplinks) {
			continue
		}
		for _, below := range beneath(links, l) {
			if below.memberDown {
				faults = append(faults, fault{BondDegraded, fmt.Sprintf("%s: its member %s is down", nameOf(links, below.master), below.name)})
			}
		}
	}
	return faults
}

func nameOf(links []link, index int) string {
	if at := slices.IndexFunc(links, func(l link) bool { return l.index == index }); at >= 0 {
		return links[at].name
	}
	return "a bond"
}
