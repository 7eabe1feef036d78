// Package barekernel runs a test on Debian's kernel, with nothing else on the machine: the test's own program is the
// first process of a virtual machine. It is for what the kernel that the tests run on may lack, such as bonds.
//
// QEMU emulates the machine (FETTLE_VM_ACCELERATOR=kvm uses KVM); it is up in some ten seconds. The kernel and its modules
// are those of Debian's cloud image, fetched once and kept outside the checkout (test/cache, kind kernel). Debian on
// amd64 only.
//
// A package whose tests use it calls Main from TestMain. A test asks Inside where it is:
//
//	func TestBonds(t *testing.T) {
//		if !barekernel.Inside() {
//			barekernel.Run(t, "bonding", "veth") // runs this very test in there
//			return
//		}
//		...
//	}
package barekernel
