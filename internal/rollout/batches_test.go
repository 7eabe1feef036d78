package rollout_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/rollout"
)

func strategy(growth rollout.Growth, initial, step int) rollout.Strategy {
	return rollout.Strategy{Growth: growth, Initial: initial, Step: step, Threshold: 100, SafetyLimit: 50}
}

// roll rolls out over nodes; of every batch so many fail, at most.
func roll(s rollout.Strategy, nodes, ceiling, fail int) (sizes []int, stopped bool) {
	c, b := rollout.Compartment{Nodes: nodes, Ceiling: ceiling}, rollout.Batches{}
	for range 10 * nodes {
		size := s.Next(b, c)
		if size == 0 {
			break
		}
		sizes = append(sizes, size)
		failed := min(fail, size)
		c.Complete, c.Failed = c.Complete+size-failed, c.Failed+failed
		b = s.Evaluate(b, size-failed, failed)
	}
	return sizes, b.Stopped
}

// The tables of the NodeWright contract: all batches succeed.
func TestBatchesThatSucceed(t *testing.T) {
	for _, tc := range []struct {
		name     string
		strategy rollout.Strategy
		nodes    int
		want     []int // the first ones
		batches  int
	}{
		{"fixed 2 on 10", strategy(rollout.Fixed, 2, 0), 10, []int{2, 2, 2, 2, 2}, 5},
		{"linear 1/1 on 15", strategy(rollout.Linear, 1, 1), 15, []int{1, 2, 3, 4, 5}, 5},
		{"linear 1/1 on 1000", strategy(rollout.Linear, 1, 1), 1000, []int{1, 2, 3}, 45},
		{"linear 5/5 on 1000", strategy(rollout.Linear, 5, 5), 1000, []int{5, 10, 15}, 20},
		{"exponential 1×2 on 15", strategy(rollout.Exponential, 1, 2), 15, []int{1, 2, 4, 8}, 4},
		{"exponential 1×2 on 1000", strategy(rollout.Exponential, 1, 2), 1000, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 489}, 10},
		{"exponential 1×4 on 1000", strategy(rollout.Exponential, 1, 4), 1000, []int{1, 4, 16, 64, 256, 659}, 6},
	} {
		sizes, stopped := roll(tc.strategy, tc.nodes, tc.nodes, 0)
		if len(sizes) != tc.batches || !slices.Equal(sizes[:len(tc.want)], tc.want) || stopped {
			t.Errorf("%s: %v", tc.name, sizes)
		}
	}
}

// All nodes fail. Unlike in the contract, a stop does not depend on how far the rollout has come.
func TestBatchesThatFail(t *testing.T) {
	failing := func(s rollout.Strategy, threshold int) rollout.Strategy { s.FailureThreshold = threshold; return s }
	for _, tc := range []struct {
		name     string
		strategy rollout.Strategy
		nodes    int
		want     []int
	}{
		{"exponential 8×2 on 100", failing(strategy(rollout.Exponential, 8, 2), 3), 100, []int{8, 4, 2}},
		{"linear 4/2 on 20", failing(strategy(rollout.Linear, 4, 2), 3), 20, []int{4, 2, 1}},
		{"fixed 2 on 10, twice", failing(strategy(rollout.Fixed, 2, 0), 2), 10, []int{2, 2}},
		{"fixed 2 on 10, three times", failing(strategy(rollout.Fixed, 2, 0), 3), 10, []int{2, 2, 2}},
	} {
		sizes, stopped := roll(tc.strategy, tc.nodes, tc.nodes, tc.nodes)
		if !slices.Equal(sizes, tc.want) || !stopped {
			t.Errorf("%s: %v, stopped %v", tc.name, sizes, stopped)
		}
	}
	if sizes, stopped := roll(strategy(rollout.Fixed, 2, 0), 10, 10, 10); len(sizes) != 5 || stopped {
		t.Errorf("without a threshold: %v", sizes)
	}
}

func TestThresholdsAreOfWholePercents(t *testing.T) {
	s := strategy(rollout.Fixed, 4, 0)
	for threshold, fails := range map[int]bool{75: false, 76: true, 90: true} {
		s.Threshold = threshold
		if got := s.Evaluate(rollout.Batches{}, 3, 1); got.Failed != fails {
			t.Errorf("3 of 4 at %d: %+v", threshold, got)
		}
	}
	if got := s.Evaluate(rollout.Batches{Number: 3}, 0, 0); got.Number != 3 {
		t.Errorf("a batch of blocked nodes counts: %+v", got)
	}
}

func TestCeiling(t *testing.T) {
	for _, tc := range []struct {
		nodes          int
		count, percent *int32
		want           int
	}{
		{10, nil, nil, 10}, {0, nil, nil, 1}, {10, new(int32(3)), nil, 3}, {2, new(int32(3)), nil, 2}, {10, new(int32(0)), nil, 1},
		{10, nil, new(int32(25)), 2}, {10, nil, new(int32(5)), 1}, {10, nil, new(int32(0)), 1}, {10, nil, new(int32(100)), 10},
	} {
		if got := rollout.Ceiling(tc.nodes, tc.count, tc.percent); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// Whatever the strategy, no batch exceeds its budget, and a rollout ends: with every node, or stopped.
func TestRolloutsKeepToTheirBudgetAndEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rollout.Strategy{
			Growth:  rapid.SampledFrom([]rollout.Growth{rollout.Fixed, rollout.Linear, rollout.Exponential}).Draw(t, "growth"),
			Initial: rapid.IntRange(1, 20).Draw(t, "initial"), Step: rapid.IntRange(2, 5).Draw(t, "step"),
			Threshold: rapid.IntRange(1, 100).Draw(t, "threshold"), SafetyLimit: rapid.IntRange(1, 100).Draw(t, "safety"),
			FailureThreshold: rapid.IntRange(0, 3).Draw(t, "failures"),
		}
		nodes, ceiling, fail := rapid.IntRange(0, 200).Draw(t, "nodes"), rapid.IntRange(1, 50).Draw(t, "ceiling"), rapid.IntRange(0, 50).Draw(t, "fail")
		sizes, stopped := roll(s, nodes, ceiling, fail)
		total := 0
		for _, size := range sizes {
			if size > ceiling {
				t.Fatalf("a batch of %d exceeds %d", size, ceiling)
			}
			total += size
		}
		if total != nodes && !stopped {
			t.Fatalf("%d of %d nodes, and not stopped: %v", total, nodes, sizes)
		}
	})
}
