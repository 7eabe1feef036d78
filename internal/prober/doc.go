// Package prober makes file calls that may never return, in a long-lived child process.
//
// A call on a dead network mount or a frozen disk blocks its thread in the kernel, where no signal reaches it. In the
// child that costs a thread of the child; the agent goes on, and learns that the call hangs. The same call is not made
// again until it has returned, other calls go on in the same child. Only a child that answers nothing at all any more is
// killed and replaced. It is started with the first call: an agent that asks nothing has no child.
package prober
