package objectstatus

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// object reads an object as the API server would give it, with numbers that are integers.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	obj, _, err := unstructured.UnstructuredJSONScheme.Decode(encoded, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*unstructured.Unstructured)
}

// custom is an object of a kind that kstatus has no rules for, at generation 5, with this status and these hints.
func custom(t *testing.T, status, hints string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, "{apiVersion: example.com/v1, kind: Driver, metadata: {name: a, generation: 5}}")
	if hints != "" {
		o.SetAnnotations(map[string]string{"fettle.dev/status-hint": hints})
	}
	if status == "" {
		return o
	}
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(status), &decoded); err != nil {
		t.Fatal(err)
	}
	o.Object["status"] = integers(decoded)
	return o
}

// integers makes whole numbers what the decoder of the API makes of them.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

// unchanged fails when an analysis changes the object, which others share.
func unchanged(t *testing.T, o *unstructured.Unstructured, look func()) {
	t.Helper()
	before := runtime.DeepCopyJSON(o.Object)
	look()
	if !equalJSON(before, o.Object) {
		t.Errorf("the object was changed from\n%v\nto\n%v", before, o.Object)
	}
}
