package daemonset

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPolicies(t *testing.T) {
	f := newFence(t)
	t.Run("an agent writes what is its own", func(t *testing.T) {
		for what, w := range f.ownWrites("a") {
			t.Run(what, func(t *testing.T) {
				allowed(t, f.agents[boundToA], w)
				if what == "get a new token" {
					refused(t, f.agents[podOnA], w, "the kubelet renews it")
				} else {
					allowed(t, f.agents[podOnA], w)
				}
			})
		}
	})
	t.Run("an agent writes nothing of another node", func(t *testing.T) {
		for _, tc := range []struct{ who, of, why string }{
			{boundToA, "b", "the agent of node a may"},
			{podOnA, "b", ""},
			{boundToB, "a", "the agent of node b may"},
			{unbound, "a", "names no node"},
		} {
			for what, w := range f.ownWrites(tc.of) {
				t.Run(what+" of "+tc.of+" by "+tc.who, func(t *testing.T) { refused(t, f.agents[tc.who], w, tc.why) })
			}
		}
	})
	t.Run("node status", func(t *testing.T) { testNodeStatus(t, f) })
	t.Run("conditions", func(t *testing.T) { testConditions(t, f) })
	t.Run("condition types of a host", func(t *testing.T) { testConditionTypes(t, f) })
	t.Run("a node with much in it", func(t *testing.T) { testLargeNode(t, f) })
	t.Run("leases", func(t *testing.T) { testLeases(t, f) })
	t.Run("events", func(t *testing.T) { testEvents(t, f) })
	t.Run("tokens", func(t *testing.T) { testTokens(t, f) })
	t.Run("others are not affected", func(t *testing.T) { testOthers(t, f) })
	t.Run("the API server finds no fault in the expressions", func(t *testing.T) { testTypes(t, f) })
}

// testNodeStatus tries every field but the conditions. Each write is one of the agent's own, with one thing more.
func testNodeStatus(t *testing.T, f *fence) {
	for _, tc := range []struct {
		name  string
		patch object // strategic merge, beside a condition of our own
		why   string
	}{
		{"add a label", object{"metadata": object{"labels": object{"more": "x"}}}, "in metadata: labels"},
		{"change a label", object{"metadata": object{"labels": object{"zone": "x"}}}, "in metadata: labels"},
		{"remove a label", object{"metadata": object{"labels": object{"zone": nil}}}, "in metadata: labels"},
		{"add an annotation", object{"metadata": object{"annotations": object{"more": "x"}}}, "in metadata: annotations"},
		{"remove all annotations", object{"metadata": object{"annotations": nil}}, "in metadata: annotations"},
		{"add a finalizer", object{"metadata": object{"finalizers": []any{"example.com/stay"}}}, "in metadata: finalizers"},
		{"remove a finalizer", object{"metadata": object{"$deleteFromPrimitiveList/finalizers": []any{"example.com/keep"}}}, "in metadata: finalizers"},
		{"add an owner", object{"metadata": object{"ownerReferences": []any{object{"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "u"}}}}, "in metadata: ownerReferences"},
		{"change the addresses", object{"status": object{"addresses": []any{object{"type": "InternalIP", "address": "10.0.0.8"}}}}, "in status: addresses"},
		{"add an address", object{"status": object{"addresses": []any{object{"type": "ExternalIP", "address": "1.2.3.4"}}}}, "in status: addresses"},
		{"remove the addresses", object{"status": object{"addresses": nil}}, "in status: addresses"},
		{"add capacity", object{"status": object{"capacity": object{"example.com/more": "8"}}}, "in status: capacity"},
		{"take capacity away", object{"status": object{"capacity": object{"example.com/gpu": "0"}}}, "in status: capacity"},
		{"change what is allocatable", object{"status": object{"allocatable": object{"cpu": "64"}}}, "in status: allocatable"},
		{"set the phase", object{"status": object{"phase": "Terminated"}}, "in status: phase"},
		{"change the boot ID", object{"status": object{"nodeInfo": object{"bootID": "boot-2"}}}, "in status: nodeInfo"},
		{"change the images", object{"status": object{"images": []any{object{"names": []any{"example.com/evil:1"}}}}}, "in status: images"},
		{"say that a volume is in use", object{"status": object{"volumesInUse": []any{"v"}}}, "in status: volumesInUse"},
		{"say that a volume is attached", object{"status": object{"volumesAttached": []any{object{"name": "v", "devicePath": "/dev/x"}}}}, "in status: volumesAttached"},
		{"move the kubelet's port", object{"status": object{"daemonEndpoints": object{"kubeletEndpoint": object{"Port": 666}}}}, "in status: daemonEndpoints"},
		{"add a runtime handler", object{"status": object{"runtimeHandlers": []any{object{"name": "runc"}}}}, "in status: runtimeHandlers"},
		{"claim a feature", object{"status": object{"features": object{"supplementalGroupsPolicy": true}}}, "in status: features"},
		{"declare a feature", object{"status": object{"declaredFeatures": []any{"GuaranteedQoSPodCPUResize"}}}, "in status: declaredFeatures"},
		{"two at once", object{"metadata": object{"labels": object{"more": "x"}}, "status": object{"phase": "Running"}}, "in metadata: labels"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := write{"PATCH", "/api/v1/nodes/a/status", strategicPatch, with(tc.patch, ownStatus)}
			allowed(t, f.admin.CoreV1().RESTClient(), w) // there is nothing else wrong with it
			for _, who := range []string{boundToA, podOnA} {
				refused(t, f.agents[who], w, "changed "+tc.why)
			}
			allowed(t, f.agents[boundToA], write{"PATCH", w.path, w.contentType, ownStatus})
		})
	}
	t.Run("the spec is out of reach", func(t *testing.T) {
		// The API server itself drops it.
		w := write{"PATCH", "/api/v1/nodes/a/status", strategicPatch, object{"spec": object{"unschedulable": true, "taints": []any{object{"key": "k", "effect": "NoExecute"}}}}}
		answer, err := f.agents[boundToA].Patch(strategicPatch).RequestURI(w.path).Body(encode(t, w.body)).Do(t.Context()).Raw()
		if err != nil {
			refused(t, f.agents[boundToA], w, "changed: spec")
		} else if strings.Contains(string(answer), "unschedulable") {
			t.Errorf("it got through: %s", answer)
		}
		node, err := f.admin.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		must(t, err)
		if node.Spec.Unschedulable {
			t.Error("the node is unschedulable")
		}
	})
}

func testConditions(t *testing.T, f *fence) {
	const foreign = "example.com/Foreign"
	for _, tc := range []struct {
		name  string
		patch any
		kind  string
		why   string // empty: it is allowed
	}{
		{"change one of ours", object{"status": object{"conditions": []any{object{"type": "fettle.dev/StorageReady", "status": "False", "reason": "ReadOnly"}}}}, strategicPatch, ""},
		{"add one of ours", object{"status": object{"conditions": []any{object{"type": "fettle.dev/ExtraReady", "status": "Unknown"}}}}, strategicPatch, ""},
		{"remove one of ours", object{"status": object{"conditions": []any{object{"type": "fettle.dev/StorageReady", "$patch": "delete"}}}}, strategicPatch, ""},
		{"add another's", object{"status": object{"conditions": []any{object{"type": "example.com/More", "status": "True"}}}}, strategicPatch, "changed: example.com/More"},
		{"add one that looks like ours", object{"status": object{"conditions": []any{object{"type": "xfettle.dev/Healthy", "status": "True"}}}}, strategicPatch, "changed: xfettle.dev/Healthy"},
		{"say that the kubelet is not ready", object{"status": object{"conditions": []any{object{"type": "Ready", "status": "False"}}}}, strategicPatch, "changed: Ready"},
		{"touch the kubelet's heartbeat", object{"status": object{"conditions": []any{object{"type": "Ready", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}}}}, strategicPatch, "changed: Ready"},
		{"change another's message", object{"status": object{"conditions": []any{object{"type": foreign, "message": "hm"}}}}, strategicPatch, "changed: " + foreign},
		{"remove another's", object{"status": object{"conditions": []any{object{"type": foreign, "$patch": "delete"}}}}, strategicPatch, "changed: " + foreign},
		{"replace all by ours", object{"status": object{"conditions": []any{ownCondition}}}, mergePatch, "changed: Ready, " + foreign},
		{"remove all", object{"status": object{"conditions": nil}}, mergePatch, "changed: Ready, " + foreign},
		{"say another's twice", []any{object{"op": "copy", "from": "/status/conditions/0", "path": "/status/conditions/-"}}, jsonPatch, "and no others"},
		{"rename another's to one of ours", []any{object{"op": "replace", "path": "/status/conditions/1/type", "value": "fettle.dev/Mine"}}, jsonPatch, "changed: " + foreign},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := write{"PATCH", "/api/v1/nodes/a/status", tc.kind, tc.patch}
			allowed(t, f.admin.CoreV1().RESTClient(), w)
			for _, who := range []string{boundToA, podOnA} {
				if tc.why == "" {
					allowed(t, f.agents[who], w)
				} else {
					refused(t, f.agents[who], w, tc.why)
				}
			}
		})
	}
}

// testConditionTypes : what a Host lists as its agent's is what the controller sets to Unknown, in the agent's place.
func testConditionTypes(t *testing.T, f *fence) {
	lists := func(types ...any) write {
		return write{"PATCH", "/apis/fettle.dev/v1alpha1/hosts/a/status", mergePatch, object{"status": object{"conditionTypes": types}}}
	}
	for _, tc := range []struct {
		name  string
		types []any
		why   string // empty: it is allowed
	}{
		{"none", []any{}, ""},
		{"ours", []any{"fettle.dev/Healthy", "fettle.dev/Mine"}, ""},
		{"another's", []any{"npd.example.com/KernelOK"}, "listed: npd.example.com/KernelOK"},
		{"another's among ours", []any{"fettle.dev/Healthy", "example.com/Foreign", "fettle.dev/Mine"}, "listed: example.com/Foreign"},
		{"one that looks like ours", []any{"xfettle.dev/Healthy"}, "listed: xfettle.dev/Healthy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			allowed(t, f.admin.CoreV1().RESTClient(), lists(tc.types...))
			for _, who := range []string{boundToA, podOnA} {
				if tc.why == "" {
					allowed(t, f.agents[who], lists(tc.types...))
				} else {
					refused(t, f.agents[who], lists(tc.types...), tc.why)
				}
			}
		})
	}
	t.Run("the two policies know the same prefixes", func(t *testing.T) {
		prefixes := func(policy string) string {
			p, err := f.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), policy, metav1.GetOptions{})
			must(t, err)
			for _, v := range p.Spec.Variables {
				if v.Name == "prefixes" {
					return v.Expression
				}
			}
			return policy + " has no prefixes"
		}
		if nodes, hosts := prefixes("nodeagent-nodes.fettle.dev"), prefixes("nodeagent-hosts.fettle.dev"); nodes != hosts {
			t.Errorf("%s for nodes, %s for hosts", nodes, hosts)
		}
	})
}

// testLargeNode : expressions have a budget. A node at the bounds of what kubelets report must not exceed it.
func testLargeNode(t *testing.T, f *fence) {
	node, err := f.admin.CoreV1().Nodes().Get(t.Context(), "b", metav1.GetOptions{})
	must(t, err)
	large := object{"metadata": object{"labels": object{}, "annotations": object{"long": strings.Repeat("x", 200<<10)}}, "status": object{}}
	for i := range 200 {
		large["metadata"].(object)["labels"].(object)[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("v", 60)
	}
	var images, conditions, attached []any
	for i := range 100 { // kubelets report 50
		name := fmt.Sprintf("registry.example.com/some/where/image-%d", i)
		images = append(images, object{"sizeBytes": i, "names": []any{name + "@sha256:" + strings.Repeat("a", 64), name + ":v1", name + ":v2", name + ":latest"}})
		attached = append(attached, object{"name": "kubernetes.io/csi/driver^" + name, "devicePath": "/dev/" + name})
	}
	for i := range 40 {
		conditions = append(conditions, object{"type": fmt.Sprintf("example.com/Condition%d", i), "status": "True", "message": strings.Repeat("m", 500)})
	}
	large["status"] = object{"images": images, "conditions": conditions, "volumesAttached": attached}
	_, err = f.admin.CoreV1().Nodes().Patch(t.Context(), node.Name, strategicPatch, encode(t, large), metav1.PatchOptions{}, "status")
	must(t, err)
	allowed(t, f.agents[boundToB], f.ownWrites("b")["apply its conditions"])
	refused(t, f.agents[boundToB], write{"PATCH", "/api/v1/nodes/b/status", strategicPatch, object{"status": object{"phase": "Running"}}}, "in status: phase")
}

func testLeases(t *testing.T, f *fence) {
	leasesOf := f.admin.CoordinationV1().Leases("fettle-node-lease")
	versions := map[string]string{}
	for _, name := range []string{"a", "b"} {
		lease, err := leasesOf.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		versions[name] = lease.ResourceVersion
	}
	body := object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{}, "spec": object{"holderIdentity": "me"}}
	f.grantPatchOfLeases(t)
	for _, verb := range []struct{ name, verb, contentType string }{
		{"patch", "PATCH", mergePatch}, {"apply", "PATCH", applyPatch}, {"update", "PUT", "application/json"}, {"delete", "DELETE", ""},
	} {
		for _, name := range []string{"a", "b"} {
			t.Run(verb.name+" "+name, func(t *testing.T) {
				w := write{verb.verb, leases + "/" + name, verb.contentType, with(object{"metadata": object{"name": name}}, body)}
				if verb.verb == "PUT" {
					w.body = with(object{"metadata": object{"resourceVersion": versions[name]}}, w.body.(object))
				}
				if verb.contentType == applyPatch {
					w.path += "?fieldManager=x&force=true"
				}
				for _, who := range []string{boundToA, podOnA} {
					if name == "a" {
						allowed(t, f.agents[who], w)
					} else {
						refused(t, f.agents[who], w, "the agent of node a may not write lease fettle-node-lease/b")
					}
				}
			})
		}
	}
	t.Run("a name made by the API server", func(t *testing.T) {
		w := write{"POST", leases, "application/json", with(object{"metadata": object{"generateName": "a"}}, body)}
		refused(t, f.agents[boundToA], w, "may not write lease fettle-node-lease/a")
	})
}

// grantPatchOfLeases grants more than the manifests do. The policies hold also where somebody else's role is wider than
// ours, and a right that is not granted would never reach them.
func (f *fence) grantPatchOfLeases(t *testing.T) {
	t.Helper()
	const name, namespace = "wider", "fettle-node-lease"
	rbac := f.admin.RbacV1()
	_, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"patch"}}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "fettle-system", Name: "nodeagent"}},
	}, metav1.CreateOptions{})
	must(t, err)
	must(t, await(t, func() error { // the API server reads rights from a cache
		return do(t.Context(), f.agents[boundToA], write{"PATCH", leases + "/a", mergePatch, object{}})
	}))
}

func testEvents(t *testing.T, f *fence) {
	own := func(change object) write { return write{"POST", events, "application/json", with(change, event("a"))} }
	agent := f.agents[boundToA]
	allowed(t, agent, own(object{"regarding": object{"kind": "Host", "apiVersion": "fettle.dev/v1alpha1"}}))
	refused(t, agent, own(object{"regarding": object{"kind": "Pod"}}), "may not write events about Pod a")
	refused(t, agent, own(object{"regarding": object{"name": "b"}}), "may not write events about Node b")
	refused(t, agent, own(object{"regarding": object{"name": ""}}), "may not write events about Node")

	// An event of another cannot be turned into one of ours.
	_, err := f.Kubectl(t.Context(), "create", "--filename="+file(t, string(encode(t, event("b")))))
	must(t, err)
	change := object{"series": object{"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}}
	refused(t, agent, write{"PATCH", events + "/b.1", mergePatch, change}, "may not write events about Node b")
	allowed(t, f.agents[boundToB], write{"PATCH", events + "/b.1", mergePatch, change})
}

func testTokens(t *testing.T, f *fence) {
	pod := f.makePod(t, "b")
	for _, tc := range []struct {
		name, serviceAccount string
		spec                 object // over what is right
		why                  string // empty: it is allowed
	}{
		{"as it should be", "nodeagent", object{}, ""},
		{"for 30 days", "nodeagent", object{"expirationSeconds": 2592000}, ""},
		{"for longer", "nodeagent", object{"expirationSeconds": 2592001}, "live up to 2592000 seconds"},
		{"bound to nothing", "nodeagent", object{"boundObjectRef": nil}, "asked for: none"},
		{"bound to another node", "nodeagent", object{"boundObjectRef": object{"name": "b", "uid": f.nodes["b"].UID}}, "asked for: Node b"},
		{"bound to a pod", "nodeagent", object{"boundObjectRef": object{"kind": "Pod", "name": pod.Name, "uid": pod.UID}}, "asked for: Pod nodeagent-b"},
		{"bound to the node by name alone", "nodeagent", object{"boundObjectRef": object{"uid": nil}}, "asked for: Node a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := write{"POST", "/api/v1/namespaces/fettle-system/serviceaccounts/" + tc.serviceAccount + "/token", "application/json", with(object{"spec": tc.spec}, f.tokenRequest("a"))}
			if tc.why == "" {
				allowed(t, f.agents[boundToA], w)
			} else {
				refused(t, f.agents[boundToA], w, tc.why)
			}
		})
	}
	t.Run("of another ServiceAccount, were there a right to", func(t *testing.T) {
		grant := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"too-much"},` +
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},` +
			`"subjects":[{"kind":"ServiceAccount","name":"nodeagent","namespace":"fettle-system"}]}`
		_, err := f.Kubectl(t.Context(), "create", "--filename="+file(t, grant))
		must(t, err)
		w := write{"POST", "/api/v1/namespaces/fettle-system/serviceaccounts/controller/token", "application/json", f.tokenRequest("a")}
		must(t, await(t, func() error {
			if err := do(t.Context(), f.agents[boundToA], w); err == nil || !strings.Contains(err.Error(), "may not get tokens of ServiceAccount fettle-system/controller") {
				return fmt.Errorf("got %w", err)
			}
			return nil
		}))
		_, err = f.Kubectl(t.Context(), "delete", "clusterrolebinding", "too-much")
		must(t, err)
	})
}

// testOthers : whoever is not an agent writes as if there were no policies.
func testOthers(t *testing.T, f *fence) {
	conditions := object{"status": object{"conditions": []any{object{"type": "fettle.dev/Healthy", "status": "Unknown", "reason": "AgentSilent"}}}}
	status := func(patch object) write { return write{"PATCH", "/api/v1/nodes/a/status", strategicPatch, patch} }
	kubelet, controller := f.asKubelet(t, "a"), f.as(t, "controller", nil)
	allowed(t, kubelet, status(object{"status": object{"addresses": []any{object{"type": "InternalIP", "address": "10.0.0.9"}}, "phase": "Running"}}))
	allowed(t, controller, status(conditions))
	allowed(t, controller, write{"PATCH", "/apis/fettle.dev/v1alpha1/hosts/a/status", mergePatch, object{"status": object{"conditionTypes": []any{"fettle.dev/X"}}}})
	for what, w := range f.ownWrites("a") {
		if what != "create its lease" { // is there
			allowed(t, f.admin.CoreV1().RESTClient(), w)
		}
	}
}

// testTypes waits for the controller manager to have looked at every policy.
func testTypes(t *testing.T, f *fence) {
	var policies *admissionregistrationv1.ValidatingAdmissionPolicyList
	must(t, await(t, func() (err error) {
		policies, err = f.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=fettle"})
		if err != nil {
			return err
		}
		for _, p := range policies.Items {
			if p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
				return fmt.Errorf("policy %s was not looked at yet", p.Name)
			}
		}
		return nil
	}))
	if len(policies.Items) != 5 {
		t.Errorf("%d policies, want 5", len(policies.Items))
	}
	for _, p := range policies.Items {
		for _, w := range p.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", p.Name, w.FieldRef, w.Warning)
		}
		if *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s fails open", p.Name)
		}
	}
}
