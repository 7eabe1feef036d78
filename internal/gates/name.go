package gates

import "strings"

// nodeName stands for the name of the node in the name of an object.
const nodeName = "$(NODE_NAME)"

// nameTemplate is the name of an object, or of one object for each node.
type nameTemplate string

func (t nameTemplate) perNode() bool { return strings.Contains(string(t), nodeName) }

// of gives the name of the object for a node.
func (t nameTemplate) of(node string) string { return strings.ReplaceAll(string(t), nodeName, node) }

// node gives the node that the object of this name is for.
func (t nameTemplate) node(name string) (string, bool) {
	parts := strings.Split(string(t), nodeName)
	times, fixed := len(parts)-1, len(strings.Join(parts, ""))
	if times == 0 || len(name) <= fixed || (len(name)-fixed)%times != 0 {
		return "", false
	}
	start := len(parts[0])
	end := start + (len(name)-fixed)/times
	node := name[start:end]
	return node, t.of(node) == name
}
