package framework

// blocks is the memory of a snapshot's nodes: they lie one after the other in the order in which decisions go round them, so that
// the processor fetches the next ones while a filter looks at one. With each node somewhere else a decision about 5 000 nodes mostly
// waits for memory, and takes twice as long.
type blocks []*[blockSize]NodeInfo

const blockSize = 64

// slot returns the memory of a place, which stays the same. Places are asked for without gaps.
func (b *blocks) slot(place int) *NodeInfo {
	if place/blockSize == len(*b) {
		*b = append(*b, new([blockSize]NodeInfo))
	}
	return &(*b)[place/blockSize][place%blockSize]
}
