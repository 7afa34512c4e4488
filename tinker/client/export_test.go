package client

// Remembered is the number of entries that the client keeps of published snapshots.
func (c *Client) Remembered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}
