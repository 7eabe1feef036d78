package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whoever searches for a message of the agent finds it in the page only while the page quotes what the agent says.
func TestTroubleshootingQuotesWhatTheAgentSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	source := sourceText(t)
	quoted := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, quote := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			said := quote[1]
			if said == "/status" || said == "watchdog timeout" { // a path, and words of systemd
				continue
			}
			quoted++
			if !strings.Contains(source, said) {
				t.Errorf("the agent does not say %q", said)
			}
		}
	}
	if quoted < 30 {
		t.Errorf("only %d messages are quoted", quoted)
	}
}

// What a degraded machine is for a script, whoever writes one has from the pages.
func TestPagesSayTheExitStatusesOfHelp(t *testing.T) {
	const degraded = "also when something is degraded"
	for page, command := range map[string]string{"README.md": "check", "docs/standalone.md": "status"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		help, _, _ := run(t, command, "--help")
		for where, says := range map[string]string{page: string(text), command + " --help": help} {
			if !strings.Contains(strings.Join(strings.Fields(says), " "), "healthy") || !strings.Contains(says, degraded) {
				t.Errorf("%s does not say %q", where, degraded)
			}
		}
	}
}

// sourceText is the text of the agent's source, with strings that are written in parts put together.
func sourceText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"../../internal", "."} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			all.Write(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(all.String(), "")
}
