package main

import (
	"strings"
	"testing"
	"time"
)

func TestWhatIsLeftOutIsNamedAndCounted(t *testing.T) {
	var sum totals
	sum.add(levels[0], outcome{total: 10, skipped: 1, took: time.Second})
	sum.leftOut = map[string]int{"vm": 7}
	text := sum.closing()
	for _, want := range []string{"left out: level vm, 7 tests\n", "9 passed, 0 failed, 1 skipped\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if sum.bad() {
		t.Error("a run without a failure counts as failed")
	}
}

func TestALevelThatRanNothingOrBrokeIsAFailure(t *testing.T) {
	for name, o := range map[string]outcome{
		"broken":      {total: 3, err: errBroken{}},
		"failed":      {total: 3, failed: 1},
		"without any": {},
	} {
		var sum totals
		sum.add(levels[0], o)
		if !sum.bad() {
			t.Errorf("%s: counts as passed", name)
		}
	}
}

func TestChoose(t *testing.T) {
	chosen, out, err := choose(levels, nil, []string{"vm"})
	if err != nil || len(chosen) != len(levels)-1 || len(out) != 1 || out[0].name != "vm" {
		t.Errorf("leave out vm: %v, %v, %v", chosen, out, err)
	}
	if chosen, _, err = choose(levels, []string{"unit"}, nil); err != nil || len(chosen) != 1 {
		t.Errorf("only unit: %v, %v", chosen, err)
	}
	if _, _, err = choose(levels, nil, []string{"wm"}); err == nil || !strings.Contains(err.Error(), `"wm"`) {
		t.Errorf("a level that does not exist: %v", err)
	}
}

type errBroken struct{}

func (errBroken) Error() string { return "broken" }
