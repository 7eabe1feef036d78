// Package gates says whether the objects that readiness rules require are ready: the pod of a DaemonSet on a node, an
// object of any kind, or a resource that the node offers.
//
// It watches what the rules at hand name and nothing else, each selection with a watch of its own that ends with the last
// rule that needs it, and keeps of every object only what a verdict reads. A verdict costs no request.
//
// What is missing, cannot be read, or is of a kind that the cluster does not know is Unknown, and no rule ever takes that
// for ready. What nobody has looked at yet is neither, for half a minute at most: rules leave nodes as they are for it, and an
// API that accepts and never answers keeps only those rules waiting that need it. An API server that does not answer at all is the controller's blindness, not the object's: then what was known
// stands, as it does for everything else that the controller watches.
package gates
