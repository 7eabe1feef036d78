// Package probes says what a probe is and how a kind of check is declared.
//
// A kind is data: its name, the condition it feeds, the reasons it can give, its default schedule and its options. The
// probes themselves live in packages below this one, one file for each; probes/catalogue lists them, probes/schedule
// runs them. Nothing here knows of Kubernetes.
package probes
