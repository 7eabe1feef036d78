// Package sealing lets the controller hand values to one agent that nobody on the way can read: not the API server's
// store, not an agent of another node, not whoever may read the object that carries them.
//
// An agent has a key pair. The private key never leaves its machine's state folder; the public key is published in
// Host.status.agent.publicKey. A value is sealed to the public key together with a Binding, the place it is meant for,
// and opens nowhere else. The suite is HPKE (RFC 9180) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM.
//
// Sealing says who can read a value, not who wrote it: anybody with the public key can seal. Who may write the object
// that carries it is the API server's to say.
//
// The package knows nothing of Kubernetes objects, and of the agent only where its files lie.
package sealing
