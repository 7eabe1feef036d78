package gates

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNameTemplate(t *testing.T) {
	for _, tc := range []struct {
		name           string
		template       nameTemplate
		object, node   string
		none           bool // the object is for no node
		everybodysName bool // the template is no template
	}{
		{name: "a plain name is for every node", template: "license", object: "license", none: true, everybodysName: true},
		{name: "the whole name", template: "$(NODE_NAME)", object: "rack1-a", node: "rack1-a"},
		{name: "in the middle", template: "gpu-$(NODE_NAME)-check", object: "gpu-rack1-a-check", node: "rack1-a"},
		{name: "twice", template: "$(NODE_NAME).$(NODE_NAME)", object: "rack1.rack1", node: "rack1"},
		{name: "twice, and different", template: "$(NODE_NAME).$(NODE_NAME)", object: "rack1.rack2", none: true},
		{name: "another prefix", template: "gpu-$(NODE_NAME)", object: "cpu-rack1-a", none: true},
		{name: "another suffix", template: "$(NODE_NAME)-check", object: "rack1-a-look", none: true},
		{name: "a name too short for a node", template: "gpu-$(NODE_NAME)", object: "gpu-", none: true},
		{name: "prefix and suffix overlap", template: "aa-$(NODE_NAME)-aa", object: "aa-aa", none: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node, ok := tc.template.node(tc.object)
			if node != tc.node && ok || ok == tc.none || tc.template.perNode() == tc.everybodysName {
				t.Errorf("node %q %v, per node %v", node, ok, tc.template.perNode())
			}
		})
	}
}

// TestNameTemplateThereAndBack: the object of a node is the object of that node.
func TestNameTemplateThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template := rapid.StringMatching(`[ab.-]{0,3}(\$\(NODE_NAME\)[ab.-]{0,3}){1,3}`).Draw(t, "template")
		node := rapid.StringMatching(`[ab.-]{1,4}`).Draw(t, "node")
		name := nameTemplate(template)
		if back, ok := name.node(name.of(node)); !ok || back != node {
			t.Errorf("template %q, node %q: object %q is of node %q, %v", template, node, name.of(node), back, ok)
		}
	})
}
