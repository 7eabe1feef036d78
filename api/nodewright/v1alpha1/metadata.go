package v1alpha1

// Prefix of the labels, annotations and conditions of this group.
const Prefix = "nodewright.nvidia.com/"

const (
	// Finalizer keeps a NodeWright until its cordons are lifted and what is to be uninstalled is.
	Finalizer = Prefix + "nodewright"
	// PauseAnnotation on a NodeWright with the value "true" stops it and all that come after it.
	PauseAnnotation = Prefix + "pause"
	// DisableAnnotation on a NodeWright with the value "true" skips it.
	DisableAnnotation = Prefix + "disable"
	// IgnoreLabel on a Node with exactly the value "true" has the node left alone.
	IgnoreLabel = Prefix + "ignore"
)

// NodeStateAnnotation on a Node mirrors what became of the packages of a NodeWright there.
func NodeStateAnnotation(nodeWright string) string { return Prefix + "nodeState_" + nodeWright }

// StatusKey is the annotation and the label, on a Node, that mirror the node's Status for a NodeWright.
func StatusKey(nodeWright string) string { return Prefix + "status_" + nodeWright }

// VersionAnnotation on a Node tells who wrote NodeStateAnnotation last.
func VersionAnnotation(nodeWright string) string { return Prefix + "version_" + nodeWright }

// CordonAnnotation on a Node says that it is cordoned on account of a NodeWright.
func CordonAnnotation(nodeWright string) string { return Prefix + "cordon_" + nodeWright }
