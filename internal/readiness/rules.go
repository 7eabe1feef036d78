package readiness

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/internal/taints"
)

// Rules holds the compiled rules of the cluster. It may be used concurrently.
type Rules struct {
	cache   client.Reader
	memory  *Memory
	current atomic.Pointer[compiledRules]
	reload  sync.Mutex
}

// compiledRules is one state of all rules. It is never changed.
type compiledRules struct {
	// version counts the states, from 1.
	version int
	set     *taints.Rules
	// asked are the condition types that rules require.
	asked map[string]bool
	// tried are the rules in dry run.
	tried []compiledRule
	// conflicts are those of the set.
	conflicts []taints.Conflict
	// byUID has the rules that exist, those being deleted among them.
	byUID map[types.UID]compiledRule
}

type compiledRule struct {
	generation int64
	// since is the version of the rules in which this one came to be as it is.
	since     int
	deleting  bool
	suspended bool
	// tried is true for a rule in dry run, and enforced are all rules with this one enforced.
	tried    bool
	enforced *taints.Rules
	rule     *taints.Rule
	// fault is why the rule cannot be applied, or nil.
	fault error
}

// NewRules returns Rules that are read from a cache, and known to memory before anything is decided by them.
func NewRules(cache client.Reader, memory *Memory) *Rules {
	return &Rules{cache: cache, memory: memory}
}

// Current returns the rules as of the last Reload, reading them first if there was none. The cache answers only once it
// is synced, so nothing is ever decided from a part of the rules.
func (r *Rules) Current(ctx context.Context) (*taints.Rules, error) {
	if c := r.current.Load(); c != nil {
		return c.set, nil
	}
	if _, err := r.Reload(ctx); err != nil {
		return nil, err
	}
	return r.current.Load().set, nil
}

// Loaded returns the rules as of the last Reload, or nil before the first.
func (r *Rules) Loaded() *taints.Rules {
	if c := r.current.Load(); c != nil {
		return c.set
	}
	return nil
}

// Reload reads all rules from the cache, compiles those that changed, and reports whether any did.
func (r *Rules) Reload(ctx context.Context) (changed bool, err error) {
	r.reload.Lock()
	defer r.reload.Unlock()
	var list readinessv1alpha1.NodeReadinessRuleList
	if err := r.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list rules: %w", err)
	}
	was := r.current.Load()
	if was == nil {
		was, changed = &compiledRules{}, true
	}
	is := &compiledRules{version: was.version + 1, asked: map[string]bool{}, byUID: make(map[types.UID]compiledRule, len(list.Items))}
	var live []*taints.Rule
	for i := range list.Items {
		api := &list.Items[i]
		c, known := was.byUID[api.UID]
		if !known || c.generation != api.Generation || c.deleting != (api.DeletionTimestamp != nil) {
			c = compiledRule{generation: api.Generation, since: is.version, deleting: api.DeletionTimestamp != nil, suspended: api.Spec.Suspend}
			c.rule, c.fault = taints.Compile(api)
			c.tried = api.Spec.DryRun && !c.suspended && !c.deleting && c.fault == nil
			changed = true
		}
		is.byUID[api.UID] = c
		if !c.deleting {
			live = append(live, c.rule)
		}
		for _, required := range api.Spec.Conditions {
			is.asked[required.Type] = true
		}
	}
	if changed = changed || len(is.byUID) != len(was.byUID); !changed {
		return false, nil
	}
	r.memory.require(list.Items)
	is.set = taints.NewRules(live...)
	is.conflicts = is.set.Conflicts()
	for uid, c := range is.byUID {
		c.enforced = nil
		if c.tried {
			c.enforced = is.set.Enforcing(uid)
			is.tried = append(is.tried, c)
		}
		is.byUID[uid] = c
	}
	nodes, err := listNodes(ctx, r.cache)
	if err != nil {
		return false, err
	}
	r.memory.Rebuild(is.set, nodes)
	r.current.Store(is)
	return true, nil
}

// Trim leaves of what is known of a rule's writers when they wrote. It is a transform of the controller's cache.
func Trim(obj any) (any, error) {
	if rule, ok := obj.(*readinessv1alpha1.NodeReadinessRule); ok {
		for i := range rule.ManagedFields {
			rule.ManagedFields[i].FieldsV1 = nil
		}
	}
	return obj, nil
}

// listNodes gives all nodes by name.
func listNodes(ctx context.Context, from client.Reader) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]*corev1.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// of returns the whole state that a set is part of, and false when it is not the state as of the last Reload.
func (r *Rules) of(set *taints.Rules) (*compiledRules, bool) {
	c := r.current.Load()
	return c, c != nil && c.set == set
}
