// Package webhook taints new Nodes while they are created, in clusters whose API server has no MutatingAdmissionPolicy.
//
// It is built so that it can never keep a machine from joining. The API server ignores it when it does not answer, and it
// allows whatever it does not understand. What it decides is taints.AtBirth; its certificates are in package certs.
package webhook
