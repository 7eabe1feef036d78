package readiness

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

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
	set *taints.Rules
	// byUID has the rules that exist, those being deleted among them.
	byUID map[types.UID]compiledRule
}

type compiledRule struct {
	generation int64
	deleting   bool
	rule       *taints.Rule
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
	is := &compiledRules{byUID: make(map[types.UID]compiledRule, len(list.Items))}
	var live []*taints.Rule
	for i := range list.Items {
		api := &list.Items[i]
		c, known := was.byUID[api.UID]
		if !known || c.generation != api.Generation || c.deleting != (api.DeletionTimestamp != nil) {
			c = compiledRule{generation: api.Generation, deleting: api.DeletionTimestamp != nil}
			c.rule, c.fault = taints.Compile(api)
			changed = true
		}
		is.byUID[api.UID] = c
		if !c.deleting {
			live = append(live, c.rule)
		}
	}
	if changed = changed || len(is.byUID) != len(was.byUID); changed {
		is.set = taints.NewRules(live...)
		nodes, err := listNodes(ctx, r.cache)
		if err != nil {
			return false, err
		}
		r.memory.Rebuild(is.set, nodes)
		r.current.Store(is)
	}
	return changed, nil
}

// compiled returns the compiled form of a rule as of the last Reload.
func (r *Rules) compiled(uid types.UID) (compiledRule, bool) {
	c := r.current.Load()
	if c == nil {
		return compiledRule{}, false
	}
	rule, ok := c.byUID[uid]
	return rule, ok
}
