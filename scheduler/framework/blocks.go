package framework

// blocks is the memory of a snapshot's nodes: they lie one after the other in the order in which decisions go round
// them, so that the processor fetches the next ones while a filter looks at one. With each node somewhere else a
// decision about 5 000 nodes mostly waits for memory, and takes twice as long.
type blocks struct {
	// places are the memory of nodes that a newer state is written over, by their places.
	places []*[blockSize]NodeInfo
	// rest is memory that nothing was written into, for states that stay; strewn is how many have been put there since
	// all nodes lay together.
	rest   []NodeInfo
	strewn int
}

const (
	blockSize = 64
	// maxStrewn is the part of the nodes that may lie elsewhere than their neighbours: one in so many.
	maxStrewn = 4
)

// slot returns the memory of a place, which stays the same. Places are asked for without gaps.
func (b *blocks) slot(place int) *NodeInfo {
	if place/blockSize == len(b.places) {
		b.places = append(b.places, new([blockSize]NodeInfo))
	}
	return &b.places[place/blockSize][place%blockSize]
}

// fresh returns memory that nobody knows.
func (b *blocks) fresh() *NodeInfo {
	if len(b.rest) == 0 {
		b.rest = make([]NodeInfo, blockSize)
	}
	n := &b.rest[0]
	b.rest = b.rest[1:]
	b.strewn++
	return n
}
