// Package credential keeps the agent's identity alive on a machine where nobody else does.
//
// In a pod the kubelet renews the token. On bare metal an administrator delivers a first one, in the agent's kubeconfig:
// a token of the agent's ServiceAccount, bound to the machine's Node object. From then on the agent exchanges it for a
// new one in good time, keeps that in the state folder, and uses it for every request. A token that is delivered later
// wins over what is kept.
//
// What a token says of itself is read and not verified: whether it holds is the API server's to judge. A machine's clock
// may be wrong, so that a token looks expired is a reason to renew it, and never one not to try it.
//
// The package knows nothing of what the agent asks the API server for.
package credential
