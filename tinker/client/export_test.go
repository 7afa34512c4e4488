package client

// Remembered is the number of entries that the client keeps of published snapshots.
func (c *Client) Remembered() int {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	return len(c.slots.byHost)
}
