package rulecheck

import (
	"os"
	"strings"
	"testing"
)

// TestPageNamesEveryKnownReporter holds the table in docs/conditions.md against the one in code.
func TestPageNamesEveryKnownReporter(t *testing.T) {
	page, err := os.ReadFile("../../docs/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range knownReporters {
		types := strings.Join(known.types, ", ")
		if known.env != "" {
			types = "the one that its variable `" + known.env + "` names"
		}
		row := "| `" + strings.Join(known.images, "`, `") + "` | " + types + " |\n"
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/conditions.md lacks the row\n%s", row)
		}
	}
	if !strings.Contains(string(page), ReportsAnnotation+":") {
		t.Errorf("docs/conditions.md does not show the annotation %s", ReportsAnnotation)
	}
}
