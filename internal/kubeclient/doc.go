// Package kubeclient is the agent's way to the API server: the few calls it makes, each with a deadline of its own, over
// connections that no other client shares.
//
// It uses plain REST clients and a scheme of the types the agent needs; typed clientsets and informers cost a small agent
// twice its memory. It finds where the API server is without relying on what the agent watches: the kubelet's address
// for it comes before the service address, which needs a working kube-proxy.
package kubeclient
