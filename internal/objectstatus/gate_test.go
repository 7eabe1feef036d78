package objectstatus

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestGate has a row for each input by which kstatus is fooled, or might be. analyzer is what KStatus makes of it.
func TestGate(t *testing.T) {
	const job = "{apiVersion: batch/v1, kind: Job, metadata: {name: a, generation: 1}, spec: {completions: 1, suspend: %s}, status: {%s}}"
	const daemonSet = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a, generation: 1}, spec: {updateStrategy: {type: %s}}, status: {observedGeneration: 1, %s}}"
	filled := func(format string, with ...string) string {
		for _, w := range with {
			format = strings.Replace(format, "%s", w, 1)
		}
		return format
	}
	driver := func(status, hints string) string {
		return "{apiVersion: example.com/v1, kind: Driver, metadata: {name: a, generation: 5, annotations: {fettle.dev/status-hint: '" + hints + "'}}, status: " + status + "}"
	}
	for _, tc := range []struct {
		name, manifest string
		analyzer, gate Status
		says           string
	}{
		{
			name:     "no status at all",
			manifest: "{apiVersion: example.com/v1, kind: Driver, metadata: {name: a, generation: 5}}",
			analyzer: Current, gate: InProgress, says: "no status yet",
		},
		{
			name:     "an empty status",
			manifest: driver("{}", ""),
			analyzer: Current, gate: InProgress, says: "no status yet",
		},
		{
			name:     "a kind whose status kstatus knows to be of no account",
			manifest: "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: ClusterIP}}",
			analyzer: Current, gate: Current,
		},
		{
			name:     "blanks between hints",
			manifest: driver("{observedGeneration: 5, conditions: [{type: Ready, status: 'True'}]}", "has-ready-condition , has-observed-generation"),
			analyzer: Current, gate: Current,
		},
		{
			name:     "an extra condition True whose own observedGeneration is stale",
			manifest: driver("{observedGeneration: 5, conditions: [{type: Synced, status: 'True', observedGeneration: 4}]}", "conditions=Synced"),
			analyzer: Current, gate: InProgress, says: "condition Synced is about generation 4, and the object is at 5",
		},
		{
			name:     "a condition Ready whose observedGeneration is stale, without a hint",
			manifest: driver("{conditions: [{type: Ready, status: 'True', observedGeneration: 1}]}", ""),
			analyzer: Current, gate: InProgress, says: "generation 1",
		},
		{
			name:     "a condition of a generation to come: the object was restored from a backup",
			manifest: driver("{conditions: [{type: Ready, status: 'True', observedGeneration: 9}]}", ""),
			analyzer: Current, gate: InProgress, says: "generation 9",
		},
		{
			name:     "a stale condition that nobody asks for",
			manifest: driver("{conditions: [{type: Ready, status: 'True', observedGeneration: 5}, {type: Synced, status: 'True', observedGeneration: 1}]}", ""),
			analyzer: Current, gate: Current,
		},
		{
			name:     "an explicit observedGeneration of 0",
			manifest: driver("{observedGeneration: 0, conditions: [{type: Ready, status: 'True'}]}", ""),
			analyzer: InProgress, gate: InProgress,
		},
		{
			name:     "a condition Ready whose status is none of the three",
			manifest: driver("{conditions: [{type: Ready, status: Maybe}]}", ""),
			analyzer: Current, gate: Unknown, says: `"Maybe"`,
		},
		{
			name:     "two conditions Ready, False and True",
			manifest: driver("{conditions: [{type: Ready, status: 'False'}, {type: Ready, status: 'True'}]}", ""),
			analyzer: InProgress, gate: InProgress,
		},
		{
			name:     "two conditions Ready, True and False",
			manifest: driver("{conditions: [{type: Ready, status: 'True'}, {type: Ready, status: 'False'}]}", ""),
			analyzer: Current, gate: InProgress, says: "condition Ready is False",
		},
		{
			name:     "a job that runs",
			manifest: filled(job, "false", "startTime: '2026-01-01T00:00:00Z', active: 1"),
			analyzer: Current, gate: InProgress, says: "no condition Complete",
		},
		{
			name:     "a job that failed",
			manifest: filled(job, "false", "startTime: '2026-01-01T00:00:00Z', conditions: [{type: Failed, status: 'True'}]"),
			analyzer: Failed, gate: Failed,
		},
		{
			name:     "a job that was suspended after it started",
			manifest: filled(job, "true", "startTime: '2026-01-01T00:00:00Z', conditions: [{type: Suspended, status: 'True'}]"),
			analyzer: Current, gate: InProgress,
		},
		{
			name:     "a job that is complete",
			manifest: filled(job, "false", "startTime: '2026-01-01T00:00:00Z', conditions: [{type: Complete, status: 'True'}]"),
			analyzer: Current, gate: Current,
		},
		{
			name:     "a CRD without conditions",
			manifest: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a, generation: 1}}",
			analyzer: InProgress, gate: InProgress,
		},
		{
			name:     "a CRD that is established, and whose names nobody accepted",
			manifest: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a, generation: 1}, status: {conditions: [{type: Established, status: 'True'}]}}",
			analyzer: Current, gate: InProgress, says: "NamesAccepted",
		},
		{
			name:     "a CRD that is served",
			manifest: "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a, generation: 1}, status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}]}}",
			analyzer: Current, gate: Current,
		},
		{
			name:     "an APIService without conditions",
			manifest: "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: a}, status: {x: y}}",
			analyzer: Current, gate: InProgress, says: "Available",
		},
		{
			name:     "an APIService that is not available",
			manifest: "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: a}, status: {conditions: [{type: Available, status: 'False', message: no endpoints}]}}",
			analyzer: Current, gate: InProgress, says: "no endpoints",
		},
		{
			name:     "a DaemonSet that wants no pods",
			manifest: filled(daemonSet, "RollingUpdate", "desiredNumberScheduled: 0"),
			analyzer: Current, gate: InProgress, says: "no pods",
		},
		{
			name:     "a Deployment that wants no pods",
			manifest: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, generation: 1}, spec: {replicas: 0}, status: {observedGeneration: 1, conditions: [{type: Progressing, status: 'True', reason: NewReplicaSetAvailable}, {type: Available, status: 'True'}]}}",
			analyzer: Current, gate: InProgress, says: "no pods",
		},
		{
			name:     "a DaemonSet with OnDelete, one of three pods updated, all ready: it may stay so, which is not ready",
			manifest: filled(daemonSet, "OnDelete", "desiredNumberScheduled: 3, currentNumberScheduled: 3, updatedNumberScheduled: 1, numberAvailable: 3, numberReady: 3"),
			analyzer: InProgress, gate: InProgress,
		},
		{
			name:     "a StatefulSet with OnDelete none of whose pods is ready",
			manifest: "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a, generation: 1}, spec: {replicas: 3, updateStrategy: {type: OnDelete}}, status: {observedGeneration: 1, readyReplicas: 1}}",
			analyzer: Current, gate: InProgress, says: "1 of 3",
		},
		{
			name:     "a StatefulSet with OnDelete all of whose pods are ready",
			manifest: "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a, generation: 1}, spec: {replicas: 3, updateStrategy: {type: OnDelete}}, status: {observedGeneration: 1, readyReplicas: 3}}",
			analyzer: Current, gate: Current,
		},
		{
			name:     "a pod that failed",
			manifest: "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Failed}}",
			analyzer: Current, gate: Failed, says: "failed",
		},
		{
			name:     "a pod that has done its work",
			manifest: "{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Succeeded, conditions: [{type: Ready, status: 'False', reason: PodCompleted}]}}",
			analyzer: Current, gate: Current,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := object(t, tc.manifest)
			wants(t, KStatus{}.Analyze(o, Hints{}), tc.analyzer, "")
			unchanged(t, o, func() {
				wants(t, Gate{Analyzer: KStatus{}, StatusSubresource: true}.Analyze(o, Hints{}), tc.gate, tc.says)
			})
		})
	}
}

func TestObjectOfAKindWithoutStatusNeedsNone(t *testing.T) {
	o := object(t, "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: a}, handler: a}")
	wants(t, Gate{Analyzer: KStatus{}}.Analyze(o, Hints{}), Current, "")
}

// said is an analyzer that always says the same.
type said Result

func (s said) Analyze(*unstructured.Unstructured, Hints) Result { return Result(s) }

func TestGateTakesAnyAnalyzer(t *testing.T) {
	o := custom(t, "{phase: Done}", "")
	for _, tc := range []said{
		{Status: Current, Message: "fine"},
		{Status: Failed, Message: "bad"},
		{Status: Unknown, Message: "what", Fault: errors.New("what")},
	} {
		got := Gate{Analyzer: tc}.Analyze(o, Hints{})
		if got.Status != tc.Status || got.Message != tc.Message || !errors.Is(got.Fault, tc.Fault) {
			t.Errorf("%+v, want %+v", got, tc)
		}
	}
}
