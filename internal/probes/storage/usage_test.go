package storage

import (
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fettle-dev/fettle/internal/health"
)

func TestUsageFrom(t *testing.T) {
	for _, tc := range []struct {
		name string
		st   unix.Statfs_t
		want usage
	}{
		{name: "blocks kept for root are neither free nor part of the total", st: unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: 1000, Bfree: 300, Bavail: 250, Files: 100, Ffree: 40},
			want: usage{space: amount{free: 250 * 4096, total: 950 * 4096}, inodes: amount{free: 40, total: 100}}},
		{name: "blocks are counted in fragments", st: unix.Statfs_t{Bsize: 1 << 20, Frsize: 512, Blocks: 10, Bfree: 5, Bavail: 5},
			want: usage{space: amount{free: 2560, total: 5120}}},
		{name: "a file system that has no fragment size", st: unix.Statfs_t{Bsize: 4096, Blocks: 10, Bfree: 5, Bavail: 5},
			want: usage{space: amount{free: 5 * 4096, total: 10 * 4096}}},
		{name: "more free than there is does not underflow", st: unix.Statfs_t{Bsize: 1, Frsize: 1, Blocks: 10, Bfree: 11, Bavail: 11},
			want: usage{space: amount{free: 11, total: 11}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := usageFrom(tc.st); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestBoundsJudge(t *testing.T) {
	b := bounds{{level: fatal, percent: 2, absolute: 100}, {level: degraded, percent: 10}}
	for _, tc := range []struct {
		name string
		prev level
		a    amount
		want level
	}{
		{name: "exactly at the bound is enough", a: amount{free: 1000, total: 10000}, want: enough},
		{name: "just below it is not", a: amount{free: 999, total: 10000}, want: degraded},
		{name: "a degraded one stays so within three points", prev: degraded, a: amount{free: 1299, total: 10000}, want: degraded},
		{name: "and clears above them", prev: degraded, a: amount{free: 1300, total: 10000}, want: enough},
		{name: "fatal below its bound", a: amount{free: 199, total: 10000}, want: fatal},
		{name: "a fatal one stays so within three points", prev: fatal, a: amount{free: 499, total: 10000}, want: fatal},
		{name: "then is degraded", prev: fatal, a: amount{free: 500, total: 10000}, want: degraded},
		{name: "and still is where a well one would be well", prev: fatal, a: amount{free: 1200, total: 10000}, want: degraded},
		{name: "a fatal one may clear at once", prev: fatal, a: amount{free: 9000, total: 10000}, want: enough},
		{name: "a degraded one becomes fatal at the bound itself", prev: degraded, a: amount{free: 250, total: 10000}, want: degraded},
		{name: "the absolute bound counts whatever the share", a: amount{free: 99, total: 100}, want: fatal},
		{name: "and clears a tenth above", prev: fatal, a: amount{free: 109, total: 110}, want: fatal},
		{name: "which is here", prev: fatal, a: amount{free: 110, total: 110}, want: enough},
		{name: "what is not counted is enough", prev: fatal, a: amount{}, want: enough},
		{name: "sizes near the largest number do not overflow", a: amount{free: 1 << 62, total: 1 << 63}, want: enough},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := b.judge(tc.prev, tc.a); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
	if got := (bounds{{level: fatal}, {level: degraded}}).judge(fatal, amount{free: 0, total: 10}); got != enough {
		t.Errorf("bounds that are off give %d", got)
	}
}

func TestBoundsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := bounds{{level: fatal, percent: 2}, {level: degraded, percent: 10}}
		total := rapid.Uint64Range(1, 1<<50).Draw(t, "total")
		free := rapid.Uint64Range(0, total).Draw(t, "free")
		prev := level(rapid.IntRange(0, 2).Draw(t, "prev"))
		now := b.judge(prev, amount{free, total})
		if again := b.judge(now, amount{free, total}); again != now {
			t.Fatalf("the same fill gives %d, then %d", now, again)
		}
		if fresh := b.judge(enough, amount{free, total}); now < fresh {
			t.Fatalf("having been at %d makes it better: %d instead of %d", prev, now, fresh)
		}
	})
}

func TestJudgeNamesTheWorstWithoutFigures(t *testing.T) {
	gib := uint64(1 << 30)
	plenty := amount{free: 50 * gib, total: 100 * gib}
	share := func(percent uint64) amount { return amount{free: percent * gib, total: 100 * gib} }
	for _, tc := range []struct {
		name            string
		u               usage
		verdict         health.Verdict
		reason, message string
	}{
		{name: "well", u: usage{plenty, plenty}, verdict: health.OK, reason: "OK", message: "/ is writable and has space and inodes left"},
		{name: "without counted inodes", u: usage{plenty, amount{}}, verdict: health.OK, reason: "OK", message: "/ is writable and has space and inodes left"},
		{name: "little space", u: usage{share(9), plenty}, verdict: health.Degraded, reason: SpaceLow, message: "/: less than 10% of space is free"},
		{name: "no space", u: usage{share(1), share(5)}, verdict: health.Fatal, reason: SpaceExhausted, message: "/: less than 2% of space is free"},
		{name: "few inodes", u: usage{plenty, share(9)}, verdict: health.Degraded, reason: InodesLow, message: "/: less than 10% of inodes are free"},
		{name: "no inodes weigh more than little space", u: usage{share(9), share(0)}, verdict: health.Fatal, reason: InodesExhausted, message: "/: less than 2% of inodes are free"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := RootFilesystem.NewOptions().(*RootOptions)
			l := rootLook{RootOptions: *options}
			if got, want := l.judge(tc.u), (health.Result{Verdict: tc.verdict, Reason: tc.reason, Message: tc.message}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	l := rootLook{RootOptions: RootOptions{Path: "/data", FillOptions: FillOptions{SpaceFatalBytes: 20 << 30, SpaceFatalPercent: 1}}}
	if got := l.judge(usage{space: amount{free: gib, total: 1000 * gib}}).Message; got != "/data: less than 1% or 20Gi of space is free" {
		t.Errorf("%q", got)
	}
}
