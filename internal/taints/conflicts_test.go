package taints

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
)

type requirement = readinessv1alpha1.NodeSelectorRequirement

// selecting gives a rule its selector in short: "pool=a", "pool in a,b", "pool notin a", "pool", "!pool"; all must hold.
func selecting(terms ...string) edit[apiRule] {
	return func(r *apiRule) {
		r.Spec.NodeSelector = readinessv1alpha1.NodeSelector{}
		for _, term := range terms {
			key, rest, _ := strings.Cut(term, " ")
			operator, values, _ := strings.Cut(rest, " ")
			switch is := (requirement{Key: key}); {
			case strings.Contains(key, "="):
				k, v, _ := strings.Cut(key, "=")
				if r.Spec.NodeSelector.MatchLabels == nil {
					r.Spec.NodeSelector.MatchLabels = map[string]readinessv1alpha1.LabelValue{}
				}
				r.Spec.NodeSelector.MatchLabels[k] = readinessv1alpha1.LabelValue(v)
				continue
			case strings.HasPrefix(key, "!"):
				is.Key, is.Operator = key[1:], metav1.LabelSelectorOpDoesNotExist
				r.Spec.NodeSelector.MatchExpressions = append(r.Spec.NodeSelector.MatchExpressions, is)
			case operator == "in":
				is.Operator, is.Values = metav1.LabelSelectorOpIn, strings.Split(values, ",")
				r.Spec.NodeSelector.MatchExpressions = append(r.Spec.NodeSelector.MatchExpressions, is)
			case operator == "notin":
				is.Operator, is.Values = metav1.LabelSelectorOpNotIn, strings.Split(values, ",")
				r.Spec.NodeSelector.MatchExpressions = append(r.Spec.NodeSelector.MatchExpressions, is)
			default:
				is.Operator = metav1.LabelSelectorOpExists
				r.Spec.NodeSelector.MatchExpressions = append(r.Spec.NodeSelector.MatchExpressions, is)
			}
		}
	}
}

func TestOverlaps(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b []string
		want bool
	}{
		{name: "the same label", a: []string{"pool=a"}, b: []string{"pool=a"}, want: true},
		{name: "two values of a label", a: []string{"pool=a"}, b: []string{"pool=b"}},
		{name: "two labels", a: []string{"pool=a"}, b: []string{"zone=b"}, want: true},
		{name: "two labels, of which one differs", a: []string{"pool=a", "zone=a"}, b: []string{"pool=a", "zone=b"}},
		{name: "a value among several", a: []string{"pool in a,b"}, b: []string{"pool=b"}, want: true},
		{name: "a value among others", a: []string{"pool in a,b"}, b: []string{"pool=c"}},
		{name: "a value that is excluded", a: []string{"pool=a"}, b: []string{"pool notin a"}},
		{name: "one of two values is excluded", a: []string{"pool in a,b"}, b: []string{"pool notin a"}, want: true},
		{name: "both values are excluded", a: []string{"pool in a,b"}, b: []string{"pool notin a", "pool notin b"}},
		{name: "exclusions always leave a value", a: []string{"pool notin a"}, b: []string{"pool notin b", "pool"}, want: true},
		{name: "a value and presence", a: []string{"pool=a"}, b: []string{"pool"}, want: true},
		{name: "a value and absence", a: []string{"pool=a"}, b: []string{"!pool"}},
		{name: "presence and absence", a: []string{"pool"}, b: []string{"!pool"}},
		{name: "absence is among what notin allows", a: []string{"!pool"}, b: []string{"pool notin a"}, want: true},
		{name: "absence on both sides", a: []string{"!pool"}, b: []string{"!pool"}, want: true},
		{name: "the empty value is a value", a: []string{"pool="}, b: []string{"!pool"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules := compileAll(rule(uidA, "a", selecting(tc.a...)), rule(uidB, "b", selecting(tc.b...))).All()
			if got, mirrored := rules[0].Overlaps(rules[1]), rules[1].Overlaps(rules[0]); got != tc.want || mirrored != tc.want {
				t.Errorf("got %v, the other way round %v, want %v", got, mirrored, tc.want)
			}
		})
	}
	t.Run("a selector that cannot be parsed overlaps with nothing", func(t *testing.T) {
		rules := compileAll(rule(uidA, "a"), rule(uidB, "b", unparsable)).All()
		if rules[0].Overlaps(rules[1]) || rules[1].Overlaps(rules[0]) {
			t.Error("it does")
		}
	})
}

var someSelector = rapid.SliceOfN(rapid.SampledFrom([]string{
	"x=a", "x=b", "x in a,b", "x in b,c", "x notin a", "x notin b,c", "x", "!x", "y=a", "y notin a", "y in a,b", "!y",
}), 1, 4)

// Two labels with three values each, or absent, are all the nodes there are, but that "d" stands for any other value.
func TestOverlapsIsWhetherSomeNodeIsSelectedByBoth(t *testing.T) {
	values := []string{"", "a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rule(uidA, "a", selecting(someSelector.Draw(t, "a")...)), rule(uidB, "b", selecting(someSelector.Draw(t, "b")...))
		rules := compileAll(a, b).All()
		some := false
		for _, x := range values {
			for _, y := range values {
				n := node()
				n.Labels = map[string]string{}
				if x != "" {
					n.Labels["x"] = x
				}
				if y != "" {
					n.Labels["y"] = y
				}
				some = some || rules[0].Selects(n) && rules[1].Selects(n)
			}
		}
		if got := rules[0].Overlaps(rules[1]); got != some {
			t.Fatalf("overlaps: %v, some node: %v\n%+v\n%+v", got, some, a.Spec.NodeSelector, b.Spec.NodeSelector)
		}
	})
}

func TestConflicts(t *testing.T) {
	storage := needs("example.com/Storage", "True")
	for _, tc := range []struct {
		name  string
		rules []*apiRule
		want  []string // first, second, taint, and about what
	}{
		{name: "one rule has none", rules: []*apiRule{rule(uidA, "a")}},
		{name: "rules that ask for the same agree", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b")}},
		{name: "other demands", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", storage)}, want: []string{"a b " + networkKey + ":NoSchedule held"}},
		{name: "other values, in the order of names", rules: []*apiRule{rule(uidA, "z"), rule(uidB, "b", taintValue("x"))}, want: []string{"b z " + networkKey + ":NoSchedule value"}},
		{name: "other taints", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", storage, taintKey("r.example.com/storage"))}},
		{name: "another effect is another taint", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", storage, effect("PreferNoSchedule"))}},
		{name: "unless eviction is not acknowledged", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", storage, effect("NoExecute"))},
			want: []string{"a b " + networkKey + ":NoSchedule held"}},
		{name: "further taints", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", storage, taintKey("r.example.com/storage"), also(networkKey+"=:NoSchedule"))},
			want: []string{"a b " + networkKey + ":NoSchedule value"}},
		{name: "other nodes", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", storage, pool("control"))}},
		{name: "a dry run beside the rule it may replace", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", storage, dryRun)}},
		{name: "a bound on one of them", rules: []*apiRule{rule(uidA, "a"), rule(uidB, "b", atMost("1"))}, want: []string{"a b " + networkKey + ":NoSchedule held"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, c := range compileAll(tc.rules...).Conflicts() {
				about := "held"
				if c.Values {
					about = "value"
				}
				got = append(got, fmt.Sprintf("%s %s %s %s", c.First.Name, c.Second.Name, c.Taint, about))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// The index finds every rule that selects a node, and only those are returned.
func TestSelectingIsEveryRuleThatSelects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rules []*apiRule
		for i := range rapid.IntRange(0, 8).Draw(t, "rules") {
			r := rule(ruleUID(i), fmt.Sprintf("rule-%d", i), selecting(someSelector.Draw(t, "selector")...))
			if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
				unparsable(r)
			}
			rules = append(rules, r)
		}
		n := node()
		n.Labels = rapid.MapOf(rapid.SampledFrom([]string{"x", "y", "z"}), rapid.SampledFrom([]string{"", "a", "b", "c"})).Draw(t, "labels")
		set := compileAll(rules...)
		var got, want []types.UID
		for _, r := range set.Selecting(n) {
			got = append(got, r.UID)
		}
		for _, r := range set.All() {
			if r.Selects(n) {
				want = append(want, r.UID)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// BenchmarkSelecting asks for the one rule of many, each of a pool of its own, that selects a node with 30 labels: through
// the index, and by trying every rule.
func BenchmarkSelecting(b *testing.B) {
	n := node()
	for i := range 30 {
		n.Labels[fmt.Sprintf("label.example.com/%d", i)] = "value"
	}
	for _, count := range []int{20, 100, 500} {
		var rules []*apiRule
		for i := range count {
			rules = append(rules, rule(ruleUID(i), fmt.Sprintf("rule-%03d", i), pool(fmt.Sprintf("pool-%d", i))))
		}
		pool("workers")(rules[0])
		set := compileAll(rules...)
		b.Run(fmt.Sprintf("%d rules, index", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(set.Selecting(n)) != 1 {
					b.Fatal("not one")
				}
			}
		})
		b.Run(fmt.Sprintf("%d rules, each", count), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				found := 0
				for _, r := range set.All() {
					if r.Selects(n) {
						found++
					}
				}
				if found != 1 {
					b.Fatal("not one")
				}
			}
		})
	}
}
