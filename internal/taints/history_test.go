package taints

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watched is a node that a controller looks at, as time goes by, and that it may write to.
type watched struct {
	node    *corev1.Node
	rules   *Rules
	history History
	agent   Agent
	now     time.Time
}

func (w *watched) look() Decision {
	w.history = w.history.Observe(w.node, w.rules, w.agent, w.now)
	d := Decide(w.node, w.rules, Seen{Now: w.now, History: w.history})
	w.node = carryOut(w.node, d)
	return d
}

func (w *watched) held() bool { return len(w.node.Spec.Taints) > 0 }

// step is one of a test: the reporter says something, the controller restarts, or time passes.
type step struct {
	after time.Duration // since the step before
	do    func(*watched)
	held  bool          // whether the node is held after a look
	due   time.Duration // from this step, when the controller wants to look again; 0 for never
}

func says(status corev1.ConditionStatus) func(*watched) {
	return func(w *watched) { w.beats(status, time.Time{}) }
}

// heartbeat renews the heartbeat of the condition, by the node's clock.
func heartbeat(at time.Time) func(*watched) {
	return func(w *watched) { w.beats(w.node.Status.Conditions[0].Status, at) }
}

func (w *watched) beats(status corev1.ConditionStatus, at time.Time) {
	w.node = w.node.DeepCopy()
	var others []corev1.NodeCondition
	for _, c := range w.node.Status.Conditions {
		if c.Type != "example.com/Network" {
			others = append(others, c)
		}
	}
	w.node.Status.Conditions = append([]corev1.NodeCondition{{Type: "example.com/Network", Status: status, LastHeartbeatTime: metav1.Time{Time: at}}}, others...)
}

func restart(w *watched) { w.history = History{} }
func reboot(id string) func(*watched) {
	return func(w *watched) { w.node = w.node.DeepCopy(); w.node.Status.NodeInfo.BootID = id }
}
func nothing(*watched) {}
func edited(changes ...edit[apiRule]) func(*watched) {
	return func(w *watched) { w.rules = compileAll(rule(uidA, "network", changes...)) }
}
func relabelled(to string) func(*watched) {
	return func(w *watched) { w.node = w.node.DeepCopy(); w.node.Labels["pool"] = to }
}
func both(a, b func(*watched)) func(*watched) { return func(w *watched) { a(w); b(w) } }

const ms = time.Millisecond

func TestWaiting(t *testing.T) {
	const minute = time.Minute
	slow := rule(uidA, "network", waits(minute, 2*minute))
	for _, tc := range []struct {
		name  string
		rule  *apiRule
		steps []step
	}{
		{name: "a new node is held at once", rule: slow, steps: []step{{do: says("False"), held: true}}},
		{name: "a new node without the condition is held at once", rule: slow, steps: []step{{do: nothing, held: true}}},
		{name: "a new node that is well is not held", rule: slow, steps: []step{{do: says("True")}}},
		{name: "a node that gets well is released when that has lasted", rule: slow, steps: []step{
			{do: says("False"), held: true},
			{after: minute, do: says("True"), held: true, due: 2 * minute},
			{after: 119 * time.Second, do: nothing, held: true, due: time.Second},
			{after: time.Second, do: nothing},
		}},
		{name: "a relapse begins the wait anew", rule: slow, steps: []step{
			{do: says("False"), held: true},
			{after: minute, do: says("True"), held: true, due: 2 * minute},
			{after: minute, do: says("False"), held: true},
			{after: minute, do: says("True"), held: true, due: 2 * minute},
			{after: 2 * minute, do: nothing},
		}},
		{name: "a node that is known is held when it has been ill for long enough", rule: slow, steps: []step{
			{do: says("True")},
			{after: minute, do: says("False"), due: minute},
			{after: 59 * time.Second, do: nothing, due: time.Second},
			{after: time.Second, do: nothing, held: true},
		}},
		{name: "another status that is not as required does not begin the wait anew", rule: slow, steps: []step{
			{do: says("True")},
			{do: says("False"), due: minute},
			{after: 30 * time.Second, do: says("Unknown"), due: 30 * time.Second},
			{after: 30 * time.Second, do: nothing, held: true},
		}},
		{name: "a short illness does not count", rule: slow, steps: []step{
			{do: says("True")},
			{do: says("False"), due: minute},
			{after: 59 * time.Second, do: says("True")},
			{after: time.Hour, do: nothing},
		}},
		{name: "what one condition does not yet count for, another holding the node does not make count", rule: twoConditions(slow), steps: []step{
			{do: both(says("True"), storage("True"))},
			{do: says("False"), due: minute},
			{after: 10 * time.Second, do: storage("False"), held: true, due: 50 * time.Second},
			{after: 10 * time.Second, do: storage("True"), due: 40 * time.Second},
			{after: 40 * time.Second, do: nothing, held: true},
		}},
		{name: "only removing waits", rule: rule(uidA, "network", waits(0, minute)), steps: []step{
			{do: says("True")}, {do: says("False"), held: true}, {do: says("True"), held: true, due: minute}, {after: minute, do: nothing},
		}},
		{name: "only adding waits", rule: rule(uidA, "network", waits(minute, 0)), steps: []step{
			{do: says("False"), held: true}, {do: says("True")}, {do: says("False"), due: minute}, {after: minute, do: nothing, held: true},
		}},
		{name: "after a restart a free node waits from first sight", rule: slow, steps: []step{
			{do: says("True")},
			{do: says("False"), due: minute},
			{after: 50 * time.Second, do: restart, due: minute},
			{after: minute, do: nothing, held: true},
		}},
		{name: "after a restart a held node waits from first sight", rule: slow, steps: []step{
			{do: says("False"), held: true},
			{do: says("True"), held: true, due: 2 * minute},
			{after: minute, do: restart, held: true, due: 2 * minute},
			{after: 2 * minute, do: nothing},
		}},
		{name: "a node that came while nobody looked is new all the same", rule: slow, steps: []step{{after: time.Hour, do: says("False"), held: true}}},
		{name: "and so is one of before the rule", rule: rule(uidB, "other", taintKey("r.example.com/other"), needs("B", "Unknown")), steps: []step{
			{do: says("False")},
			{after: time.Hour, do: both(restart, edited(waits(minute, minute))), held: true},
		}},
		{name: "a node that is selected anew is new", rule: slow, steps: []step{
			{do: says("True")},
			{do: relabelled("control")},
			{after: time.Hour, do: both(says("False"), relabelled("workers")), held: true},
		}},
		{name: "a node recreated under the name is another one", rule: slow, steps: []step{
			{do: says("False"), held: true},
			{do: func(w *watched) { w.node = node(); w.node.UID = "another"; says("True")(w) }},
			{do: says("False"), due: minute},
			{do: func(w *watched) { w.node = node(); w.node.UID = "a third"; says("False")(w) }, held: true},
		}},
		{name: "a rule that learns to wait knows whom it holds", rule: rule(uidA, "network"), steps: []step{
			{do: says("False"), held: true},
			{do: edited(waits(minute, minute)), held: true},
			{do: says("True"), held: true, due: minute},
			{after: minute, do: nothing},
			{do: says("False"), due: minute},
		}},
		{name: "a rule that was never enforced would wait for no node", rule: rule(uidA, "network", waits(minute, minute), dryRun), steps: []step{
			{do: says("True")},
			{do: says("False")},
			{do: edited(waits(minute, minute)), held: true},
		}},
		{name: "a rule that is put into dry run waits on", rule: slow, steps: []step{
			{do: says("True")},
			{do: both(says("False"), edited(waits(minute, minute), dryRun)), due: minute},
			{after: 30 * time.Second, do: edited(waits(minute, minute)), due: 30 * time.Second},
			{after: 30 * time.Second, do: nothing, held: true},
		}},
		{name: "a taint that moves while its removal waits", rule: slow, steps: []step{
			{do: says("False"), held: true},
			{do: says("True"), held: true, due: 2 * minute},
			{after: minute, do: edited(waits(minute, 2*minute), taintKey("r.example.com/moved")), held: true, due: minute},
			{after: minute, do: nothing},
		}},
		{name: "a bootstrap waits before it is done", rule: rule(uidA, "network", waits(0, minute), bootstrapOnly), steps: []step{
			{do: says("False"), held: true}, {do: says("True"), held: true, due: minute}, {after: minute, do: nothing}, {do: says("False")},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { follow(t, node(), tc.rule, tc.steps) })
	}
}

// follow takes a node through steps. Each is looked at twice, since a second look must change nothing.
func follow(t *testing.T, n *corev1.Node, r *apiRule, steps []step) {
	t.Helper()
	w := &watched{node: n, rules: compileAll(r), now: noon}
	for i, s := range steps {
		w.now = w.now.Add(s.after)
		s.do(w)
		d := w.look()
		if w.held() != s.held {
			t.Fatalf("step %d: held: %v, want %v; decision %+v", i+1, w.held(), s.held, d)
		}
		again := w.look()
		if !again.Empty() {
			t.Fatalf("step %d: a second look changes more: %+v", i+1, again)
		}
		var due time.Duration
		if !again.Due.IsZero() {
			due = again.Due.Sub(w.now)
		}
		if due != s.due {
			t.Fatalf("step %d: wants to look again in %s, want %s", i+1, due, s.due)
		}
	}
}

// twoConditions adds a condition that does not wait.
func twoConditions(r *apiRule) *apiRule {
	r = r.DeepCopy()
	second := *r.Spec.Conditions[0].DeepCopy()
	second.Type, second.For = "example.com/Storage", nil
	r.Spec.Conditions = append(r.Spec.Conditions, second)
	return r
}

func storage(status corev1.ConditionStatus) func(*watched) {
	return func(w *watched) {
		w.node = w.node.DeepCopy()
		w.node.Status.Conditions = append(w.node.Status.Conditions[:1], corev1.NodeCondition{Type: "example.com/Storage", Status: status})
	}
}

func TestAgeing(t *testing.T) {
	const minute = time.Minute
	clock := noon.Add(-7 * time.Hour) // of the node: it may be wrong
	fresh := rule(uidA, "network", ages(minute))
	kubelet := func(at time.Time) func(*watched) {
		return func(w *watched) {
			w.node = w.node.DeepCopy()
			w.node.Status.Conditions = append(w.node.Status.Conditions[:1], corev1.NodeCondition{Type: "Ready", Status: "True", LastHeartbeatTime: metav1.Time{Time: at}})
		}
	}
	for _, tc := range []struct {
		name  string
		rule  *apiRule
		steps []step
	}{
		{name: "a condition without signs of life counts as missing after its time", rule: fresh, steps: []step{
			{do: says("True"), due: minute + ms}, {after: minute, do: nothing, due: ms}, {after: ms, do: nothing, held: true},
		}},
		{name: "a heartbeat is a sign of life whatever the clock it is of", rule: fresh, steps: []step{
			{do: both(says("True"), heartbeat(clock)), due: minute + ms},
			{after: 50 * time.Second, do: heartbeat(clock.Add(time.Second)), due: minute + ms},
			{after: 50 * time.Second, do: heartbeat(clock.Add(-time.Hour)), due: minute + ms},
			{after: 50 * time.Second, do: nothing, due: 10*time.Second + ms},
			{after: 20 * time.Second, do: nothing, held: true},
			{after: time.Hour, do: heartbeat(clock), due: minute + ms},
		}},
		{name: "a changed status is a sign of life", rule: rule(uidA, "network", ages(minute), required("False")), steps: []step{
			{do: says("True"), due: minute + ms, held: true},
			{after: 50 * time.Second, do: says("False"), due: minute + ms},
		}},
		{name: "a missing condition does not age", rule: fresh, steps: []step{{do: nothing, held: true}}},
		{name: "the default stands in for a condition that is too old", rule: rule(uidA, "network", ages(minute), orElse("True")), steps: []step{
			{do: says("False"), held: true, due: minute + ms}, {after: 2 * minute, do: nothing},
		}},
		{name: "after a restart the age begins anew where nothing is known", rule: fresh, steps: []step{
			{do: says("True"), due: minute + ms}, {after: 50 * time.Second, do: restart, due: minute + ms}, {after: 2 * minute, do: nothing, held: true},
		}},
		{name: "after a restart it is what the node's own clock shows", rule: fresh, steps: []step{
			{do: both(says("True"), both(heartbeat(clock), kubelet(clock.Add(20*time.Second)))), due: 40*time.Second + ms},
			{after: 20 * time.Second, do: both(kubelet(clock.Add(40*time.Second)), restart), due: 20*time.Second + ms},
			{after: 10 * time.Second, do: both(kubelet(clock.Add(55*time.Second)), restart), due: 5*time.Second + ms},
			{after: 10 * time.Second, do: both(kubelet(clock.Add(65*time.Second)), restart), held: true},
		}},
		{name: "a condition that appears is a sign of life, whatever the clock of its reporter", rule: fresh, steps: []step{
			{do: onlyKubelet(clock), held: true},
			{after: minute, do: both(says("True"), both(heartbeat(clock.Add(-time.Hour)), kubelet(clock.Add(minute)))), due: minute + ms},
			{after: 2 * minute, do: kubelet(clock.Add(3 * minute)), held: true},
			{do: onlyKubelet(clock.Add(4 * minute)), held: true},
			{do: both(says("True"), heartbeat(clock.Add(-time.Hour))), due: minute + ms},
		}},
		{name: "heartbeats of the future show a wrong clock and tell nothing", rule: fresh, steps: []step{
			{do: both(says("True"), both(heartbeat(clock), kubelet(noon.Add(time.Hour)))), due: minute + ms},
			{do: both(heartbeat(noon.Add(2*time.Hour)), restart), due: minute + ms},
		}},
		{name: "ageing and waiting come together", rule: rule(uidA, "network", ages(minute), waits(30*time.Second, 0)), steps: []step{
			{do: says("True"), due: minute + ms},
			{after: minute + ms, do: nothing, due: 30 * time.Second},
			{after: 30 * time.Second, do: nothing, held: true},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { follow(t, node(), tc.rule, tc.steps) })
	}
}

// onlyKubelet leaves the node no other condition than the kubelet's.
func onlyKubelet(at time.Time) func(*watched) {
	return func(w *watched) {
		w.node = w.node.DeepCopy()
		w.node.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "True", LastHeartbeatTime: metav1.Time{Time: at}}}
	}
}

func required(status corev1.ConditionStatus) edit[apiRule] {
	return func(r *apiRule) { r.Spec.Conditions[0].RequiredStatus = status }
}
func orElse(status corev1.ConditionStatus) edit[apiRule] {
	return func(r *apiRule) { r.Spec.Conditions[0].DefaultStatus = status }
}

// Conditions of our own agent are written on change only; what keeps them fresh is its lease.
func TestConditionsOfALivingAgentDoNotAge(t *testing.T) {
	r := rule(uidA, "network", needs("fettle.dev/NetworkReady", "True"), ages(time.Minute))
	quiet := func(since time.Duration) func(*watched) {
		return func(w *watched) { w.agent = Agent{QuietSince: noon.Add(since)} }
	}
	follow(t, node(has("fettle.dev/NetworkReady", "True")), r, []step{
		{do: nothing},
		{after: 24 * time.Hour, do: nothing},
		{do: quiet(24*time.Hour - 30*time.Second), due: 30*time.Second + ms},
		{after: 31 * time.Second, do: nothing, held: true},
		{do: func(w *watched) { w.agent = Agent{} }},
	})
}

// An agent that is configured so publishes conditions with another prefix, and its Host says which.
func TestConditionsOfALivingAgentDoNotAgeWhateverTheirPrefix(t *testing.T) {
	scratch := "example.com/ScratchReady"
	r := rule(uidA, "scratch", needs(scratch, "True"), ages(time.Minute))
	agent := func(is Agent) func(*watched) { return func(w *watched) { w.agent = is } }
	follow(t, node(has(scratch, "True")), r, []step{
		{do: agent(Agent{Types: []string{scratch}})},
		{after: 24 * time.Hour, do: nothing},
		{do: agent(Agent{Types: []string{scratch}, QuietSince: noon.Add(24*time.Hour - 30*time.Second)}), due: 30*time.Second + ms},
		{after: 31 * time.Second, do: nothing, held: true},
		{do: agent(Agent{Types: []string{scratch}})},
		{do: agent(Agent{}), held: true}, // no longer the agent's: whoever reports it has not been heard for a day
	})
}

func TestRegating(t *testing.T) {
	clock := noon.Add(time.Hour)
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{name: "what was said before a reboot does not count after it", steps: []step{
			{do: both(reboot("1"), both(says("True"), heartbeat(clock)))},
			{do: says("False")}, // passed for this boot
			{do: both(says("True"), heartbeat(clock))},
			{do: reboot("2"), held: true},
			{after: time.Hour, do: nothing, held: true},
			{do: heartbeat(clock.Add(time.Second))},
			{do: says("False")},
			{do: reboot("3"), held: true},
		}},
		{name: "a reporter without heartbeats is believed", steps: []step{
			{do: both(reboot("1"), says("True"))}, {do: reboot("2")}, {do: says("False")}, {do: reboot("3"), held: true}, {do: says("True")},
		}},
		{name: "a reboot while nobody looked", steps: []step{
			{do: both(reboot("1"), both(says("True"), heartbeat(clock)))},
			{do: both(restart, reboot("2")), held: true},
			{do: heartbeat(clock.Add(time.Second))},
		}},
		{name: "a restart during the new bootstrap believes what there is", steps: []step{
			{do: both(reboot("1"), both(says("True"), heartbeat(clock)))},
			{do: reboot("2"), held: true},
			{do: restart},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { follow(t, node(), rule(uidA, "network", regates), tc.steps) })
	}
	t.Run("a rebooted node is not waited for", func(t *testing.T) {
		follow(t, node(), rule(uidA, "network", regates, waits(time.Minute, 0)), []step{
			{do: both(reboot("1"), says("True"))}, {do: both(reboot("2"), says("False")), held: true},
		})
	})
	t.Run("our agent counts once it reports from the new boot", func(t *testing.T) {
		agent := func(boot string) func(*watched) { return func(w *watched) { w.agent = Agent{BootID: boot} } }
		follow(t, node(has("fettle.dev/NetworkReady", "True")), rule(uidA, "network", needs("fettle.dev/NetworkReady", "True"), regates), []step{
			{do: both(reboot("1"), agent("1"))}, {do: reboot("2"), held: true}, {do: agent("2")},
		})
	})
}

func TestSilenceWhileTheControllerIsBlindDoesNotCount(t *testing.T) {
	blind := func(w *watched) { w.history = w.history.Excuse(w.now) }
	follow(t, node(), rule(uidA, "network", ages(time.Minute)), []step{
		{do: says("True"), due: time.Minute + ms},
		{after: 50 * time.Second, do: blind, due: time.Minute + ms},
		{after: 50 * time.Second, do: nothing, due: 10*time.Second + ms},
		{after: 11 * time.Second, do: nothing, held: true},
		{after: time.Second, do: func(w *watched) { w.history = w.history.Excuse(w.now.Add(-time.Hour)) }, held: true}, // long known
	})
}

func TestDoubts(t *testing.T) {
	r := rule(uidA, "network", ages(time.Minute))
	w := &watched{node: node(has("example.com/Network", "True")), rules: compileAll(r), now: noon}
	w.look()
	doubtful := func(after time.Duration) bool {
		w.now = w.now.Add(after)
		return w.history.Doubtful(w.node, w.rules, w.now)
	}
	if doubtful(time.Minute) {
		t.Error("what is not too old is doubted")
	}
	if !doubtful(ms) {
		t.Error("what is too old as far as we know is not doubted")
	}
	w.history = w.history.Confirm(w.now)
	if doubtful(time.Minute) {
		t.Error("what was confirmed is doubted")
	}
	if d := w.look(); !w.held() {
		t.Errorf("what was confirmed does not count: %+v", d)
	}
	if !doubtful(ms) {
		t.Error("what was confirmed long ago is not doubted")
	}
	w.history, _ = w.history.Hear(w.node, w.rules, w.now)
	heartbeat(noon)(w)
	w.history, _ = w.history.Hear(w.node, w.rules, w.now)
	if doubtful(0) {
		t.Error("what a live read shows to be fresh is doubted")
	}
	relabelled("control")(w)
	if w.now = w.now.Add(time.Hour); doubtful(0) {
		t.Error("a node that no rule of the kind selects is doubted")
	}
	ours := &watched{node: node(has("fettle.dev/NetworkReady", "True")), rules: compileAll(rule(uidA, "network", needs("fettle.dev/NetworkReady", "True"), ages(time.Minute))), now: noon}
	ours.agent = Agent{QuietSince: noon.Add(-time.Hour)}
	ours.look()
	if ours.history.Doubtful(ours.node, ours.rules, noon) {
		t.Error("what the watch over agents has confirmed is doubted")
	}
}

func TestHearing(t *testing.T) {
	w := &watched{node: node(has("example.com/Network", "True")), rules: compileAll(rule(uidA, "network", ages(time.Minute))), now: noon}
	w.look()
	hear := func(after time.Duration, do func(*watched)) bool {
		w.now = w.now.Add(after)
		do(w)
		next, revived := w.history.Hear(w.node, w.rules, w.now)
		w.history = next
		return revived
	}
	if hear(50*time.Second, heartbeat(noon)) {
		t.Error("a heartbeat in time revives nothing")
	}
	if d := w.look(); d.Due.Sub(w.now) != time.Minute+ms {
		t.Errorf("what was heard does not count: due in %s", d.Due.Sub(w.now))
	}
	if hear(2*time.Minute, nothing) {
		t.Error("no sign of life revives")
	}
	if !hear(0, heartbeat(noon.Add(time.Second))) {
		t.Error("a late heartbeat does not revive")
	}
	if hear(0, func(w *watched) { w.node = node(); w.node.UID = "another" }) {
		t.Error("another node of the name revives")
	}
}

// What a history says in results is what decisions go by.
func TestResultsTellWhatDoesNotCount(t *testing.T) {
	w := &watched{node: node(), rules: compileAll(rule(uidA, "network", ages(time.Minute), waits(time.Minute, 0))), now: noon}
	says("True")(w)
	w.look()
	result := func() (stale, pending, missing bool, shown corev1.ConditionStatus) {
		r := w.rules.All()[0].Results(w.node, Seen{Now: w.now, History: w.history})[0]
		return r.Stale, r.Pending, r.Missing, r.CurrentStatus
	}
	if stale, pending, _, _ := result(); stale || pending {
		t.Error("fresh, and yet stale or pending")
	}
	w.now = w.now.Add(61 * time.Second)
	w.look()
	if stale, pending, missing, shown := result(); !stale || !pending || missing || shown != "True" {
		t.Errorf("too old for a moment: stale %v, pending %v, missing %v, shown %s", stale, pending, missing, shown)
	}
	w.now = w.now.Add(time.Minute)
	w.look()
	if stale, pending, _, _ := result(); !stale || pending || !w.held() {
		t.Errorf("too old for long: stale %v, pending %v, held %v", stale, pending, w.held())
	}
}
