// Package runner carries out the tasks of packages/stages on a host: it brings a package's image, lays the package out
// where its steps expect it, and has systemd run step after step under fettle-step.
//
// What it has to remember lies in one durable file, written before every act that it is about. A runner that is killed and
// started again finds its steps by their names: one that ended has left a verdict, one that runs is waited for, and one of
// which there is neither was interrupted.
package runner
