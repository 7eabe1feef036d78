// Package schedule decides when each check is looked at, and looks.
//
// One goroutine plans and passes results on; each look has a goroutine of its own, so a look that hangs delays no other
// check, and while it hangs no second look of its check is started, also when the checks are replaced meanwhile. A probe
// that watches has one goroutine more, and asks for looks before they are due. The package knows checks by name and probe only.
package schedule
