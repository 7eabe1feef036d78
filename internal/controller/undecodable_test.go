package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestARuleThatCannotBeDecodedIsNamed stores one while the schema of times is as loose as that of most kinds.
func TestARuleThatCannotBeDecodedIsNamed(t *testing.T) {
	w := newWorld(t)
	const crd = "../../deploy/crds/readiness.node.x-k8s.io_nodereadinessrules.yaml"
	strict, err := os.ReadFile(crd)
	if err != nil {
		t.Fatal(err)
	}
	loose := filepath.Join(t.TempDir(), "loose.yaml")
	withoutTimes := regexp.MustCompile(`(?m)(format: date-time\n) +maxItems: 0\n +minItems: 1\n +pattern: .*\n`).ReplaceAll(strict, []byte("$1"))
	if err := os.WriteFile(loose, withoutTimes, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.ControlPlane.Apply(t.Context(), loose); err != nil {
		t.Fatal(err)
	}
	bad := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: readiness.node.x-k8s.io/v1alpha1
kind: NodeReadinessRule
metadata: {name: bad}
spec:
  conditions: [{type: example.com/A, requiredStatus: "True"}]
  enforcementMode: continuous
  taint: {key: example.com/a, effect: NoSchedule, timeAdded: "2024-01-01t00:00:00z"}
  nodeSelector: {matchLabels: {pool: bad}}
`), &bad.Object); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the loose schema is in force", func() (bool, string) {
		err := w.Create(t.Context(), bad)
		return err == nil, fmt.Sprint(err)
	})
	if err := w.ControlPlane.Apply(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	o := testOptions(t)
	o.Log = funcr.New(func(_, text string) {
		if strings.Contains(text, "NodeReadinessRule bad cannot be decoded: parsing time") {
			select {
			case said <- text:
			default:
			}
		}
	}, funcr.Options{})
	w.run(t, o)
	select {
	case <-said:
	case <-time.After(patience):
		t.Fatal("the log does not name the rule")
	}
	if err := w.Delete(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	w.node(t, "n", "good")
	w.rule(t, "good", "good")
	w.tainted(t, "n", "r.example.com/good=pending:NoSchedule")
}
