package capture

// wakeUp sends on a channel of capacity 1 without blocking.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
