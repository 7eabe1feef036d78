// Package stages decides what of a plan may run on a host now.
//
// A plan says what packages a host should have, a Host what became of them. Follow folds what changed in the plan into the
// Host, Next names the tasks that may run, Begin and Finish record that one began and how it ended. Between any two of them
// the Host may be written down, and read again by another process: tasks that had begun are named again until they are
// finished, and nothing else depends on what a process remembers.
//
// It is pure: times come in. It knows nothing of systemd, images or API servers; packages/runner carries out its tasks.
package stages
