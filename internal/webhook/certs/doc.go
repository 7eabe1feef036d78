// Package certs makes and renews the certificates with which the controller serves its webhook.
//
// The replicas share authorities, kept in a Secret; each signs serving certificates of its own, in memory, so that none has
// to wait for another's. A new authority is made long before anybody signs with it, and the API server trusts all of them:
// at no moment does a replica show a certificate that the API server does not know yet.
//
// It is pure but for the randomness of keys: Secrets and clocks are its caller's.
package certs
