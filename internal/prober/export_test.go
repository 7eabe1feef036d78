package prober

import "time"

// ChildPID is the number of the child that is asked, 0 for none.
func (p *Prober) ChildPID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return 0
	}
	return p.current.child.Pid
}

// Left counts children that could not be killed.
func (p *Prober) Left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.left)
}

// Open counts calls that have not returned.
func (p *Prober) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// SetPong is how long a child may take to answer what touches no file.
func (p *Prober) SetPong(within time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pong = within
}

// Doubted says whether the child is being asked whether it answers.
func (p *Prober) Doubted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current != nil && p.current.doubted
}
