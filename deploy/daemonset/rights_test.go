package daemonset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// TestRightsAreThese : the API server itself lists what the agent may do, and it is this and nothing more.
func TestRightsAreThese(t *testing.T) {
	f := newFence(t)
	everywhere := []string{
		"get nodes", "patch nodes/status",
		"get hosts.fettle.dev", "list hosts.fettle.dev", "watch hosts.fettle.dev", "patch hosts/status.fettle.dev",
	}
	agent, nobody := f.agents[boundToA], f.as(t, "default", nil)
	for namespace, more := range map[string][]string{
		"default":           {"create events.events.k8s.io", "patch events.events.k8s.io"},
		"fettle-system":     {"create serviceaccounts/token nodeagent"},
		"fettle-node-lease": {"get leases.coordination.k8s.io", "create leases.coordination.k8s.io", "update leases.coordination.k8s.io", "delete leases.coordination.k8s.io"},
		"kube-system":       nil,
		"kube-node-lease":   nil,
	} {
		t.Run(namespace, func(t *testing.T) {
			want := slices.Sorted(slices.Values(append(slices.Clone(everywhere), more...)))
			ofAll := rightsIn(t, nobody, namespace)
			own := maps.Collect(func(yield func(string, bool) bool) {
				for right := range rightsIn(t, agent, namespace) {
					if !ofAll[right] && !yield(right, true) {
						return
					}
				}
			})
			if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, want) {
				t.Errorf("in namespace %s the agent may\n%s\nwant\n%s", namespace, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	t.Run("secrets are out of reach", func(t *testing.T) {
		for _, path := range []string{"/api/v1/secrets", "/api/v1/namespaces/fettle-system/secrets", "/api/v1/namespaces/kube-system/secrets/any", "/api/v1/namespaces/fettle-system/configmaps"} {
			if err := agent.Get().RequestURI(path).Do(t.Context()).Error(); err == nil || !strings.Contains(err.Error(), "forbidden") {
				t.Errorf("%s: got %v, want that it is forbidden", path, err)
			}
		}
	})
}

// rightsIn are what a user may do in a namespace and outside of any: "verb resource[.group] [name]".
func rightsIn(t *testing.T, user rest.Interface, namespace string) map[string]bool {
	t.Helper()
	body := encode(t, object{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": object{"namespace": namespace}})
	raw, err := user.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews").SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Raw()
	must(t, err)
	var review authorizationv1.SelfSubjectRulesReview
	must(t, json.Unmarshal(raw, &review))
	if review.Status.Incomplete {
		t.Fatalf("the list is incomplete: %s", review.Status.EvaluationError)
	}
	all := map[string]bool{}
	for _, r := range review.Status.ResourceRules {
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					names := r.ResourceNames
					if len(names) == 0 {
						names = []string{""}
					}
					for _, name := range names {
						all[strings.TrimSpace(verb+" "+schema.GroupResource{Group: group, Resource: resource}.String()+" "+name)] = true
					}
				}
			}
		}
	}
	for _, r := range review.Status.NonResourceRules {
		all[fmt.Sprint(r.Verbs, r.NonResourceURLs)] = true
	}
	return all
}
