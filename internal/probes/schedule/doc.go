// Package schedule decides when each check is looked at, and looks.
//
// One goroutine plans and passes results on; each look has a goroutine of its own, so a look that hangs delays no other
// check, and while it hangs no second look of its check is started. The package knows checks by name and probe only.
package schedule
