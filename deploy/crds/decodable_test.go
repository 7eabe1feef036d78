package crds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	fettlev1alpha1 "github.com/fettle-dev/fettle/api/fettle/v1alpha1"
	readinessv1alpha1 "github.com/fettle-dev/fettle/api/readiness/v1alpha1"
	"github.com/fettle-dev/fettle/test/controlplane"
)

var (
	scheme  = runtime.NewScheme()
	decoder = serializer.NewCodecFactory(scheme).UniversalDeserializer()
)

func init() {
	utilruntime.Must(readinessv1alpha1.AddToScheme(scheme))
	utilruntime.Must(fettlev1alpha1.AddToScheme(scheme))
}

// Hostile JSON values: many look like one that a Go type decodes, and are none, or cannot be encoded again.
var texts = quoted(
	// Times.
	"2024-01-01t00:00:00z", "2024-01-01t00:00:00Z", "2024-01-01T00:00:00z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00", "2024-01-01",
	"2024-01-01T00:00:00.123456+25:00", "2024-01-01T00:00:00+25:00", "2024-01-01T00:00:00-24:00", "2024-01-01T00:00:00+00:60",
	"2024-01-01T00:00:00+0000", "2024-01-01T00:00:60Z", "2016-12-31T23:59:60Z", "2024-01-01T24:00:00Z", "2024-01-01T00:60:00Z",
	"2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00x5Z", "2024-01-01T00:00:00.Z", "2024-01-01T1:00:00Z", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z",
	"2024-01-01T00:00:00Z ", "2024-01-01T00:00:00Z\n", "2024-01-01T00:00:00ZT00:00:00Z", "2024-01-01T00:00:00."+strings.Repeat("1", 400)+"Z",
	"0000-01-01T00:00:00Z", "0000-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-23:59", "10000-01-01T00:00:00Z",
	"-001-01-01T00:00:00Z", "1704067200", "2024-W01-1T00:00:00Z", "２024-01-01T00:00:00Z",
	// Quantities.
	"1e1.5", "1e.5", "1e1.", "1e99", "1e100", "1e1000", "1e2147483647", "1e9223372036854775808", "1e-9223372036854775809", "1E1.5", ".", "+", "1ki", "1.2.3", "0x10",
	"1Zi", "1e", "1 ", " 1", "1\n", strings.Repeat("9", 40), strings.Repeat("9", 5000)+"Ei", "-1", "1Ki", "500m", "1.", ".5", "NaN", "Infinity",
	// Durations.
	"1s", "1", "0", "-1s", "1d", "1w", "P1D", "PT1S", "3000000h", "2562048h", "9223372036854775808ns", "1e3s", "1.5.5s", "1S", "1 s", "s", "1us", "1µs", "1μs", "1h1",
	strings.Repeat("9", 31)+"h", ".s",
	// Numbers and percentages.
	"10%", "100%", "101%", "1.5%", "3000000000", "3000000000%", "true", "null",
	// Anything.
	"", " ", "\x00", "\u2028", "\ufffd", "True", strings.Repeat("x", 2000),
)

var numbers = []string{
	"0", "1", "-1", "1.0", "1.5", "1e3", "1e0", "-0", "-0.0", "2147483647", "2147483648", "-2147483648", "-2147483649", "3000000000", "4294967296",
	"9007199254740993", "9223372036854774784", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551616",
	"1e9", "3e9", "1e18", "1e19", "1e20", "1e21", "1e22", "1e100", "1e308", "-1e308", "1e-9", "1e-400",
}

var others = []string{
	"1", "3000000000", "1.5", `"2024-01-01t00:00:00z"`, `"1"`, `""`,
	"true", "false", "null", "{}", "[]", `[""]`, "[null]", "[{}]", `{"":""}`, `{"a":null}`,
}

func quoted(texts ...string) []string {
	var all []string
	for _, text := range texts {
		raw, err := json.Marshal(text)
		if err != nil {
			panic(err)
		}
		all = append(all, string(raw))
	}
	return all
}

// TestWhatTheAPIServerTakesCanBeDecoded puts every hostile value in the place of every field of every kind. One stored
// object that cannot be decoded would end every list of its kind, in every typed client. What was decoded can be written
// back too.
func TestWhatTheAPIServerTakesCanBeDecoded(t *testing.T) {
	c := controlplane.ForTest(t, controlplane.Options{})
	if err := c.Apply(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	h, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	examples := readExamples(t)
	for _, d := range readDefinitions(t) {
		version := d.Spec.Versions[0]
		t.Run(d.Spec.Names.Plural, func(t *testing.T) {
			root, example := version.Schema.Root, examples[d.Spec.Names.Kind]
			name := example["metadata"].(map[string]any)["name"].(string)
			left := root.leaves("")
			status := map[string]any{"apiVersion": example["apiVersion"], "kind": example["kind"], "status": example["status"]}
			delete(example, "status") // it is stored by a write to it alone, of an object that is there
			of := api{client: h, method: http.MethodPost, url: c.Config().Host + "/apis/" + d.Spec.Group + "/" + version.Name + "/" + d.Spec.Names.Plural}
			of.tryAll(t, root, example, left)
			stored, err := of.write(t.Context(), marshal(t, example), "")
			if err != nil {
				t.Fatal(err)
			}
			var with metav1.PartialObjectMetadata
			if err := json.Unmarshal(stored, &with); err != nil {
				t.Fatal(err)
			}
			status["metadata"] = map[string]any{"name": name, "resourceVersion": with.ResourceVersion}
			of.method, of.url = http.MethodPut, of.url+"/"+name+"/status"
			of.tryAll(t, root, status, left)
			if len(left) > 0 {
				t.Errorf("testdata/full.yaml has nothing in the place of %v", slices.Sorted(maps.Keys(left)))
			}
		})
	}
}

// api writes objects of one kind in one way.
type api struct {
	client      *http.Client
	method, url string
}

const dryRun = "?dryRun=All"

// write returns the object as it is stored, or would be, and a refusal.
func (a api) write(ctx context.Context, body []byte, query string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, a.method, a.url+query, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s: %s", response.Status, answer)
	}
	return answer, err
}

// tryAll writes the object with every hostile value in every place, and strikes the places off those that are left.
func (a api) tryAll(t *testing.T, s schema, object map[string]any, left map[string]bool) {
	if answer, err := a.write(t.Context(), marshal(t, object), dryRun); err != nil {
		t.Fatalf("the example is refused: %v", err)
	} else if err := a.decodes(t.Context(), answer); err != nil {
		t.Fatalf("the example: %v", err)
	}
	var writes errgroup.Group
	writes.SetLimit(8)
	s.walk("", object, func(place string, at schema, put func(any)) {
		delete(left, place)
		for _, value := range at.hostile() {
			put(json.RawMessage(value))
			body := marshal(t, object)
			writes.Go(func() error {
				answer, err := a.write(t.Context(), body, dryRun)
				switch {
				case err == nil:
					if err := a.decodes(t.Context(), answer); err != nil {
						t.Errorf("%.80s as %s is taken, but %.900v", value, place, err)
					}
				case !strings.HasPrefix(err.Error(), "4"):
					t.Errorf("%.80s as %s: %v", value, place, err)
				}
				return nil
			})
		}
	})
	_ = writes.Wait() // none returns an error
}

// decodes decodes the object as clients of the API do, and writes back what came out.
func (a api) decodes(ctx context.Context, stored []byte) error {
	obj, _, err := decoder.Decode(stored, nil, nil)
	if err != nil {
		return fmt.Errorf("cannot be decoded: %w", err)
	}
	again, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("cannot be encoded again: %w", err)
	}
	var before, after any
	if err := errors.Join(json.Unmarshal(stored, &before), json.Unmarshal(again, &after)); err != nil {
		return err
	}
	if reflect.DeepEqual(before, after) {
		return nil
	}
	if _, err := a.write(ctx, again, dryRun); err != nil {
		return fmt.Errorf("not when it is written back: %w", err)
	}
	return nil
}

// definition is what the test reads of a CRD.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Kind, Plural string }
		Versions []struct {
			Name   string
			Schema struct {
				Root schema `json:"openAPIV3Schema"`
			}
		}
	}
}

type schema struct {
	Type       string
	Enum       []any
	Properties map[string]schema
	Items      *schema
	Values     *schema `json:"additionalProperties"`
}

// leaves are the places of all values without parts.
func (s schema) leaves(place string) map[string]bool {
	all := map[string]bool{}
	for name, property := range s.Properties {
		maps.Copy(all, property.leaves(place+"."+name))
	}
	for _, part := range []*schema{s.Items, s.Values} {
		if part != nil {
			maps.Copy(all, part.leaves(place+"[]"))
		}
	}
	if len(all) == 0 && !isFixed(place) {
		all[place] = true
	}
	return all
}

// isFixed reports whether the API server itself sees to the value.
func isFixed(place string) bool {
	return place == ".apiVersion" || place == ".kind" || place == ".metadata.name" || place == ".metadata.resourceVersion"
}

// hostile are the values that may pass for one of the schema.
func (s schema) hostile() []string {
	switch {
	case len(s.Enum) > 0 || s.Type == "boolean" || s.Type == "object" || s.Type == "array":
		return others
	case s.Type == "string":
		return slices.Concat(texts, others)
	case s.Type == "integer":
		return slices.Concat(numbers, others)
	}
	return slices.Concat(texts, numbers, others)
}

// walk visits every value in the object with a function that puts another in its place.
func (s schema) walk(place string, value any, visit func(place string, at schema, put func(any))) {
	each := func(place string, at *schema, value any, put func(any)) {
		if isFixed(place) {
			return
		}
		if at == nil {
			at = &schema{}
		}
		at.walk(place, value, visit)
		visit(place, *at, put)
		put(value)
	}
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			at, under := s.Values, "[]"
			if property, is := s.Properties[name]; is {
				at, under = &property, "."+name
			} else if at == nil {
				under = "." + name
			}
			each(place+under, at, v, func(v any) { value[name] = v })
		}
	case []any:
		for i, v := range value {
			each(place+"[]", s.Items, v, func(v any) { value[i] = v })
		}
	}
}

func readDefinitions(t *testing.T) []definition {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d CRDs, %v", len(files), err)
	}
	var all []definition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(content, &d); err != nil || len(d.Spec.Versions) != 1 {
			t.Fatalf("%s: %d versions, %v", file, len(d.Spec.Versions), err)
		}
		all = append(all, d)
	}
	return all
}

// readExamples returns an object of each kind.
func readExamples(t *testing.T) map[string]map[string]any {
	content, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var example map[string]any
		if err := yaml.Unmarshal([]byte(document), &example); err != nil {
			t.Fatal(err)
		}
		all[example["kind"].(string)] = example
	}
	return all
}

func marshal(t *testing.T, object any) []byte {
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
