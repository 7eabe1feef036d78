package config

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestTolerant(t *testing.T) {
	const good, bad = "log: {level: warn}\n", "log: {level: loud}\n"
	for _, tc := range []struct {
		name      string
		environ   []string
		contents  []string
		used      int
		level     string
		heartbeat time.Duration
	}{
		{name: "all is well", environ: []string{"FETTLE_HEARTBEAT_INTERVAL=12s"}, contents: []string{good, ""}, used: 0, level: "warn", heartbeat: 12 * time.Second},
		{name: "a bad file gives way to the next", environ: []string{"FETTLE_HEARTBEAT_INTERVAL=12s"}, contents: []string{bad, good, ""}, used: 1, level: "warn", heartbeat: 12 * time.Second},
		{name: "two bad files give way to the defaults", contents: []string{bad, "a: [", ""}, used: 2, level: "info", heartbeat: 10 * time.Second},
		{name: "a bad variable is left out, the others hold", environ: []string{"FETTLE_HEARTBEAT_INTERVAL=12s", "FETTLE_LOG_LEVEL=loud"}, contents: []string{good, ""}, used: 0, level: "warn", heartbeat: 12 * time.Second},
		{name: "a variable that contradicts the file is left out", environ: []string{"FETTLE_HEARTBEAT_INTERVAL=1m"}, contents: []string{good, ""}, used: 0, level: "warn", heartbeat: 10 * time.Second},
		{name: "an unknown variable is passed over", environ: []string{"FETTLE_WEATHER=fine"}, contents: []string{good, ""}, used: 0, level: "warn", heartbeat: 10 * time.Second},
		{name: "a variable that closes a cycle is left out", environ: []string{"FETTLE_CHECKS_DISK_DEPENDS_ON=disk-space"}, contents: []string{good, ""}, used: 0, level: "warn", heartbeat: 10 * time.Second},
		{name: "bad file and bad variable", environ: []string{"FETTLE_LOG_FORMAT=xml", "FETTLE_LOG_LEVEL=error"}, contents: []string{bad, ""}, used: 1, level: "error", heartbeat: 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var contents [][]byte
			for _, c := range tc.contents {
				contents = append(contents, []byte(c))
			}
			c, used, sound := sourceWith(tc.environ...).Tolerant(contents...)
			if used != tc.used || c.Log.Level != tc.level || c.Heartbeat.Interval != tc.heartbeat {
				t.Errorf("content %d, level %s, interval %s", used, c.Log.Level, c.Heartbeat.Interval)
			}
			again, err := sound.Parse(contents[used])
			if err != nil || len(again.Changes(c)) > 0 {
				t.Errorf("the sound source gives %v, %v", again.Changes(c), err)
			}
		})
	}
}

func TestFaultsAreBounded(t *testing.T) {
	for name, content := range map[string]string{
		"thousands of unknown keys":   strings.Repeat("unknown-key-%: 1\n", 10_000),
		"thousands of unknown checks": "checks:\n" + strings.Repeat("- {name: unknown}\n", 10_000),
		"thousands of bad items":      "checks:\n- name: disk\n  codes: [" + strings.Repeat("x,", 20_000) + "]\n",
		"a long key":                  strings.Repeat("k", 200<<10) + ": 1\n",
		"a long value":                "log: {level: " + strings.Repeat("v", 200<<10) + "}\n",
		"deep nesting":                strings.Repeat("[", 100<<10),
		"garbage":                     strings.Repeat("\xffgarbage\x00", 20_000),
		"1 MiB of garbage":            strings.Repeat("garbage\n", 128<<10),
		"1 MiB of keys":               strings.Repeat("a: b\n", 200<<10),
	} {
		t.Run(name, func(t *testing.T) {
			var unique bytes.Buffer
			for i, line := range strings.SplitAfter(content, "\n") {
				unique.WriteString(strings.ReplaceAll(line, "%", strings.Repeat("i", i%100)))
			}
			_, err := Parse("f.yaml", unique.Bytes(), testKinds)
			if err == nil {
				t.Fatal("accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) > 101 || len(err.Error()) > 128<<10 {
				t.Errorf("%d lines, %d bytes", len(lines), len(err.Error()))
			}
			for _, line := range lines {
				if !strings.HasPrefix(line, "f.yaml") {
					t.Errorf("no place: %.100q", line)
				}
			}
		})
	}
}
