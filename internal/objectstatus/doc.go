// Package objectstatus says whether a Kubernetes object of any kind has become what its spec asks for.
//
// KStatus is the analysis of kstatus, tightened by hints for controllers that set their status late or name their
// conditions otherwise. Gate is stricter, for decisions that must not be taken on a mistake: it distrusts kstatus where
// kstatus is known to call an object current too early.
//
// It is pure: it reads the object it is given and nothing else. An object that does not exist, or that cannot be read, is
// its caller's to judge.
package objectstatus
