package controller

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/await"
	"github.com/fettle-dev/fettle/test/process"
)

// The world of the model is small, so that rules collide.
var (
	modelTypes = []string{"example.com/A", "example.com/B", "example.com/C"}
	modelKeys  = []string{"m.example.com/a", "m.example.com/b"}
	modelPools = []string{"p", "q"}
	// What is named twice is drawn twice as often.
	effects  = []corev1.TaintEffect{"NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute"}
	statuses = []corev1.ConditionStatus{"True", "True", "False", "Unknown"}
)

const (
	modelNodes, modelRules, modelBurst = 6, 6, 30
	// modelAge and modelHold are the times that rules of the model ask for: short, so that quiet is soon.
	modelAge, modelHold = time.Second, 300 * time.Millisecond
)

// TestModel changes rules, nodes, conditions and taints at random and kills the controller in between, again and again.
// After every burst it compares all nodes with what the oracle allows, and nothing may be written any more.
// FETTLE_MODEL_SEED repeats a run, as far as the timing of a cluster can be repeated; FETTLE_MODEL_BURSTS makes it longer.
func TestModel(t *testing.T) {
	seed, bursts := fromEnvironment(t, "FETTLE_MODEL_SEED", rand.Uint64()), fromEnvironment(t, "FETTLE_MODEL_BURSTS", 6)
	t.Logf("FETTLE_MODEL_SEED=%d", seed)
	w := newWorld(t)
	m := &model{world: w, t: t, rand: rand.New(rand.NewPCG(seed, seed)), program: build(t), nodes: map[string]*believer{}, names: map[string]string{}}
	m.restart()
	for i := range bursts {
		m.burst(int(i))
		if t.Failed() {
			return
		}
	}
	t.Logf("compared %d nodes (%d could be in more than one state), with %d taints owned, %d of them by several rules, %d of others, %d markers, %d taints of rules that are frozen, %d rules that spared a node",
		m.met.nodes, m.met.open, m.met.owned, m.met.shared, m.met.foreign, m.met.passed, m.met.frozen, m.met.spared)
}

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// model is the world, and what the oracle knows of it.
type model struct {
	*world
	t       *testing.T
	rand    *rand.Rand
	program string
	running *process.Process

	rules ruleSet
	seen  []ruleSet // since all was quiet, the present one last
	nodes map[string]*believer
	names map[string]string // of rules, by UID, for messages
	did   []string
	// met counts what was there to be compared at the end of all bursts.
	met coverage
}

type coverage struct{ nodes, open, owned, shared, foreign, passed, frozen, spared int }

// step is something that may happen. It is false when it could not.
type step struct {
	weight int
	do     func(*model) bool
}

var steps = []step{
	{8, (*model).setCondition},
	{2, (*model).dropCondition},
	{6, (*model).makeRule},
	{4, (*model).editRule},
	{1, (*model).deleteRule},
	{6, (*model).makeNode},
	{1, (*model).deleteNode},
	{2, (*model).relabel},
	{2, (*model).addTaint},
	{2, (*model).dropTaint},
	{4, (*model).cross},
	{1, (*model).kill},
}

func (m *model) burst(number int) {
	m.did, m.seen = nil, []ruleSet{m.rules}
	for _, b := range m.nodes {
		b.calm()
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	for done := 0; done < modelBurst; {
		at := m.rand.IntN(total)
		i := 0
		for ; at >= steps[i].weight; i++ {
			at -= steps[i].weight
		}
		if steps[i].do(m) {
			done++
		}
		if m.rand.IntN(4) == 0 {
			time.Sleep(time.Duration(m.rand.IntN(60)) * time.Millisecond) // so that some of it is seen in between
		}
	}
	if m.running.Failure() != nil {
		m.t.Fatalf("burst %d: %v", number, m.running.Failure())
	}
	for _, b := range m.nodes {
		b.spread(m.seen)
		b.settle(m.rules)
	}
	fault := ""
	look := func() bool { fault = m.compare(); return fault == "" }
	await.That(m.t, fmt.Sprintf("burst %d comes right", number), func() bool {
		if look() {
			return true
		}
		time.Sleep(50 * time.Millisecond)
		if m.stuck() {
			m.t.Fatalf("burst %d: nothing is written any more, and yet\n%s\nafter\n%s", number, fault, strings.Join(m.did, "\n"))
		}
		return false
	})
	m.quiet(m.t)
	if !look() {
		m.t.Fatalf("burst %d: once it was right, and then\n%s\nafter\n%s", number, fault, strings.Join(m.did, "\n"))
	}
	for name, b := range m.nodes {
		state, err := stateOf(m.getNode(m.t, name))
		m.must(err)
		m.cover(b, state)
		b.took(state)
	}
}

// cover counts what the comparison of a node was about.
func (m *model) cover(b *believer, s nodeState) {
	m.met.nodes++
	if len(b.states) > 1 {
		m.met.open++
	}
	m.met.passed += len(s.marked)
	m.met.foreign += len(s.taints) - len(s.owners)
	for _, owners := range s.owners {
		m.met.owned++
		if len(owners) > 1 {
			m.met.shared++
		}
		for uid := range owners {
			if r := m.rules.byUID(uid); r != nil && frozen(r) {
				m.met.frozen++
			}
		}
	}
	for _, r := range m.rules {
		holds := slices.ContainsFunc(slices.Collect(maps.Values(s.owners)), func(owners map[string]bool) bool { return owners[string(r.UID)] })
		if r.Spec.MaxTainted != nil && !frozen(r) && selects(r, b.aged()) && !fulfils(r, b.aged()) && !s.marked[string(r.UID)] && !holds {
			m.met.spared++
		}
	}
}

// stuck reports whether the controller has written no node for as long as it takes to act on anything in this world.
func (m *model) stuck() bool {
	mark, err := m.Mark()
	if err != nil {
		m.t.Fatal(err)
	}
	for range 3 {
		time.Sleep(5 * time.Second)
		since, err := m.RequestsSince(mark)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(writesOf(since)) > 0 || m.compare() == "" {
			return false
		}
	}
	return true
}

// compare says where the cluster differs from what the oracle allows, "" for nowhere.
func (m *model) compare() string {
	var list corev1.NodeList
	if err := m.List(m.t.Context(), &list); err != nil {
		m.t.Fatal(err)
	}
	held := map[string]int{}
	for i := range list.Items {
		n := &list.Items[i]
		state, err := stateOf(n)
		if err != nil {
			return err.Error()
		}
		b := m.nodes[n.Name]
		if _, allowed := b.states[state.String()]; !allowed {
			return m.readable(fmt.Sprintf("node %s, in pool %s with %v, is\n  %s\nand may be\n  %s\nwith the rules\n%s",
				n.Name, b.now.pool, b.now.statuses, state, strings.Join(slices.Sorted(maps.Keys(b.states)), "\n  "), m.describeRules()))
		}
		for _, owners := range state.owners {
			for uid := range owners {
				held[uid+" "+n.Name] = 1
			}
		}
	}
	return m.compareBounds(held)
}

// compareBounds looks whether a rule with a bound spares nodes only when it holds as many as it may.
func (m *model) compareBounds(held map[string]int) string {
	for _, r := range m.rules {
		if r.Spec.MaxTainted == nil || frozen(r) {
			continue
		}
		selected, owed, holds := 0, 0, 0
		for name, b := range m.nodes {
			v := b.aged()
			if !selects(r, v) {
				continue
			}
			selected++
			passed := false
			for _, s := range b.states {
				passed = passed || s.marked[string(r.UID)]
			}
			if fulfils(r, v) || passed && r.Spec.EnforcementMode == readinessv1alpha1.EnforcementModeBootstrapOnly {
				continue
			}
			owed++
			holds += held[string(r.UID)+" "+name]
		}
		bound, err := intstr.GetScaledValueFromIntOrPercent(r.Spec.MaxTainted, selected, true)
		if err != nil {
			return err.Error()
		}
		if holds < min(bound, owed) {
			return fmt.Sprintf("rule %s holds %d nodes of %d that do not fulfil it, and may hold %d", r.Name, holds, owed, bound)
		}
	}
	return ""
}

func (m *model) describeRules() string {
	var out strings.Builder
	for _, r := range m.rules {
		fmt.Fprintf(&out, "  %s %s\n", r.Name, written(r.Spec))
	}
	return out.String()
}

func written(spec readinessv1alpha1.NodeReadinessRuleSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// readable puts names in the place of UIDs.
func (m *model) readable(text string) string {
	for uid, name := range m.names {
		text = strings.ReplaceAll(text, uid, name)
	}
	return text
}

func (m *model) note(format string, args ...any) bool {
	m.did = append(m.did, fmt.Sprintf(format, args...))
	return true
}

// must ends the test on an error of our own requests.
func (m *model) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%v\nafter\n%s", err, strings.Join(m.did, "\n"))
	}
}

func one[T any](m *model, of []T) T { return of[m.rand.IntN(len(of))] }

func (m *model) chance(percent int) bool { return m.rand.IntN(100) < percent }

// anyNode is the name of a node that there is, "" when there is none.
func (m *model) anyNode() string {
	if len(m.nodes) == 0 {
		return ""
	}
	return one(m, slices.Sorted(maps.Keys(m.nodes)))
}

func (m *model) makeNode() bool {
	name := fmt.Sprintf("n%d", m.rand.IntN(modelNodes))
	if m.nodes[name] != nil {
		return false
	}
	pool := one(m, modelPools)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	b := newBeliever(nodeView{pool: pool}, newNodeState())
	if m.chance(30) { // as a kubelet registers it
		taint := corev1.Taint{Key: one(m, modelKeys), Effect: one(m, effects[:3]), Value: "registered"}
		n.Spec.Taints = []corev1.Taint{taint}
		b.change(func(taints map[string]string) { taints[taint.Key+":"+string(taint.Effect)] = taint.Value })
	}
	m.must(m.Create(m.t.Context(), n))
	m.nodes[name] = b
	return m.note("node %s joins pool %s with taints %v", name, pool, n.Spec.Taints)
}

func (m *model) deleteNode() bool {
	name := m.anyNode()
	if name == "" {
		return false
	}
	m.must(m.Delete(m.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	delete(m.nodes, name)
	return m.note("node %s is deleted", name)
}

func (m *model) relabel() bool {
	name := m.anyNode()
	if name == "" {
		return false
	}
	b, pool := m.nodes[name], one(m, modelPools)
	m.patch(m.t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, fmt.Sprintf(`{"metadata":{"labels":{"pool":%q}}}`, pool))
	b.turn(pool, b.now.statuses)
	return m.note("node %s moves to pool %s", name, pool)
}

func (m *model) setCondition() bool {
	name := m.anyNode()
	return name != "" && m.setConditionOf(name)
}

func (m *model) setConditionOf(name string) bool {
	b, conditionType, status := m.nodes[name], one(m, modelTypes), one(m, statuses)
	m.condition(m.t, name, conditionType, status)
	next := maps.Clone(b.now.statuses)
	if next == nil {
		next = map[string]corev1.ConditionStatus{}
	}
	next[conditionType] = status
	b.turn(b.now.pool, next)
	return m.note("node %s says %s=%s", name, conditionType, status)
}

func (m *model) dropCondition() bool {
	name := m.anyNode()
	if name == "" || len(m.nodes[name].now.statuses) == 0 {
		return false
	}
	b := m.nodes[name]
	conditionType := one(m, slices.Sorted(maps.Keys(b.now.statuses)))
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"$patch":"delete"}]}}`, conditionType)
	m.patch(m.t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch, "status")
	next := maps.Clone(b.now.statuses)
	delete(next, conditionType)
	b.turn(b.now.pool, next)
	return m.note("node %s no longer has %s", name, conditionType)
}

// cross lets a condition change and, while the controller acts on it, somebody edit the taints of the same node.
func (m *model) cross() bool {
	name := m.anyNode()
	if name == "" {
		return false
	}
	m.setConditionOf(name)
	time.Sleep(time.Duration(m.rand.IntN(20)) * time.Millisecond)
	if m.chance(50) {
		return m.addTaintTo(name)
	}
	return m.dropTaintOf(name)
}

func (m *model) addTaint() bool {
	name := m.anyNode()
	return name != "" && m.addTaintTo(name)
}

func (m *model) addTaintTo(name string) bool {
	taint := corev1.Taint{Key: one(m, append([]string{"foreign.example.com/x"}, modelKeys...)), Effect: one(m, effects[:3]), Value: "by-hand"}
	id := taint.Key + ":" + string(taint.Effect)
	return m.editTaints(name, "adds", id, func(n *corev1.Node) {
		if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			n.Spec.Taints = append(n.Spec.Taints, taint)
		}
	}, func(taints map[string]string) {
		if _, there := taints[id]; !there {
			taints[id] = taint.Value
		}
	})
}

func (m *model) dropTaint() bool {
	name := m.anyNode()
	return name != "" && m.dropTaintOf(name)
}

func (m *model) dropTaintOf(name string) bool {
	taint := corev1.Taint{Key: one(m, append([]string{"foreign.example.com/x"}, modelKeys...)), Effect: one(m, effects)}
	id := taint.Key + ":" + string(taint.Effect)
	return m.editTaints(name, "removes", id, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
	}, func(taints map[string]string) { delete(taints, id) })
}

// editTaints changes the taints of a node as somebody who does so by hand.
func (m *model) editTaints(name, what, id string, edit func(*corev1.Node), expect func(map[string]string)) bool {
	for {
		n := m.getNode(m.t, name)
		edit(n)
		err := m.Update(m.t.Context(), n)
		if apierrors.IsConflict(err) {
			continue
		}
		m.must(err)
		break
	}
	b := m.nodes[name]
	b.spread(m.seen)
	b.change(expect)
	return m.note("somebody %s taint %s of node %s", what, id, name)
}

func (m *model) spec() readinessv1alpha1.NodeReadinessRuleSpec {
	spec := readinessv1alpha1.NodeReadinessRuleSpec{
		NodeSelector:    readinessv1alpha1.NodeSelector{MatchLabels: map[string]readinessv1alpha1.LabelValue{"pool": readinessv1alpha1.LabelValue(one(m, modelPools))}},
		EnforcementMode: readinessv1alpha1.EnforcementModeContinuous,
		Taint:           m.taint(),
		AllowEviction:   m.chance(50),
		DryRun:          m.chance(7),
		Suspend:         m.chance(7),
	}
	if m.chance(30) {
		spec.NodeSelector = readinessv1alpha1.NodeSelector{MatchExpressions: []readinessv1alpha1.NodeSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpExists}}}
	}
	if m.chance(25) {
		spec.EnforcementMode = readinessv1alpha1.EnforcementModeBootstrapOnly
	}
	if m.chance(25) {
		if more := m.taint(); more.Key != spec.Taint.Key {
			spec.Taints = []readinessv1alpha1.TaintSpec{more}
		}
	}
	once := spec.EnforcementMode == readinessv1alpha1.EnforcementModeBootstrapOnly
	for _, i := range m.rand.Perm(len(modelTypes))[:1+m.rand.IntN(2)] {
		c := readinessv1alpha1.ConditionRequirement{Type: modelTypes[i], RequiredStatus: one(m, statuses)}
		if !once && m.chance(20) {
			c.DefaultStatus = one(m, statuses)
		}
		if m.chance(15) {
			c.MaxAge = &metav1.Duration{Duration: modelAge}
		}
		if m.chance(20) {
			c.For = &readinessv1alpha1.Hold{Adding: &metav1.Duration{Duration: modelHold}, Removing: &metav1.Duration{Duration: modelHold}}
		}
		spec.Conditions = append(spec.Conditions, c)
	}
	if !once && m.chance(30) {
		spec.ConditionPolicy = readinessv1alpha1.ConditionPolicyAnyOf
	}
	if m.chance(15) {
		bound := intstr.FromInt32(m.rand.Int32N(4))
		if m.chance(50) {
			bound = intstr.FromString("50%")
		}
		spec.MaxTainted = &bound
	}
	return spec
}

func (m *model) taint() readinessv1alpha1.TaintSpec {
	return readinessv1alpha1.TaintSpec{Key: one(m, modelKeys), Effect: one(m, effects), Value: one(m, []string{"", "x", "y"})}
}

func (m *model) makeRule() bool {
	name := fmt.Sprintf("rule-%d", m.rand.IntN(modelRules))
	if slices.ContainsFunc(m.rules, func(r *rule) bool { return r.Name == name }) {
		return false
	}
	r := &rule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: m.spec()}
	m.must(m.Create(m.t.Context(), r))
	m.names[string(r.UID)] = name
	m.ruled(append(slices.Clone(m.rules), r))
	return m.note("%s is made: %s", name, written(r.Spec))
}

func (m *model) editRule() bool {
	if len(m.rules) == 0 {
		return false
	}
	was := one(m, m.rules)
	spec := m.spec()
	if m.chance(60) { // often one thing alone changes
		only := *was.Spec.DeepCopy()
		switch m.rand.IntN(4) {
		case 0:
			only.DryRun = !only.DryRun
		case 1:
			only.Suspend = !only.Suspend
		case 2:
			only.Taint, only.Taints = spec.Taint, nil
		case 3:
			only.NodeSelector = spec.NodeSelector
		}
		spec = only
	}
	var stored *rule
	for {
		stored = m.getRule(m.t, was.Name)
		stored.Spec = spec
		err := m.Update(m.t.Context(), stored)
		if apierrors.IsConflict(err) { // its status was written meanwhile
			continue
		}
		m.must(err)
		break
	}
	next := slices.DeleteFunc(slices.Clone(m.rules), func(r *rule) bool { return r.Name == was.Name })
	m.ruled(append(next, stored))
	return m.note("%s is edited: %s", was.Name, written(spec))
}

func (m *model) deleteRule() bool {
	if len(m.rules) == 0 {
		return false
	}
	gone := one(m, m.rules)
	m.must(m.Delete(m.t.Context(), gone.DeepCopy()))
	await.That(m.t, gone.Name+" is gone", func() bool {
		err := m.Get(m.t.Context(), client.ObjectKeyFromObject(gone), &rule{})
		return apierrors.IsNotFound(err)
	})
	m.ruled(slices.DeleteFunc(slices.Clone(m.rules), func(r *rule) bool { return r.Name == gone.Name }))
	return m.note("%s is deleted", gone.Name)
}

// ruled takes in that these are the rules now.
func (m *model) ruled(rules ruleSet) {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.Name, b.Name) })
	m.rules, m.seen = rules, append(m.seen, rules)
}

func (m *model) kill() bool {
	if failure := m.running.Failure(); failure != nil {
		m.must(errors.Join(errors.New("the controller ended by itself"), failure))
	}
	m.running.Kill()
	m.note("the controller is killed")
	m.restart()
	return true
}

func (m *model) restart() { m.running = m.start(m.t, m.program) }
