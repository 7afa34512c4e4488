package policy

// panelWidth is the number of columns that a kernel computes at once. The number of columns of every right-hand side is
// a multiple of it.
const panelWidth = 16

// matrix is the left-hand side of a product: element (r, i) is data[r*rs + i*ks]. Exchanging the strides transposes it.
type matrix struct {
	data   []float32
	rs, ks int
}

// rowMajor returns a matrix whose rows are stride apart.
func rowMajor(data []float32, stride int) matrix { return matrix{data: data, rs: stride, ks: 1} }

// transposed returns the transpose of a matrix whose rows are stride apart.
func transposed(data []float32, stride int) matrix { return matrix{data: data, rs: 1, ks: stride} }

// panels is the right-hand side of a product, in panels of 16 columns: element (i, 16p+j) is data[p*tile + i*stride + j].
type panels struct {
	data         []float32
	tile, stride int
}

// inPlace views a row-major matrix as panels.
func inPlace(data []float32, stride int) panels {
	return panels{data: data, tile: panelWidth, stride: stride}
}

// pack copies the row-major k×n matrix src (rows stride apart) into contiguous panels in buf. Products over many rows
// read them without cache conflicts.
func pack(buf, src []float32, stride, k, n int) panels {
	p := panels{data: buf[:k*n], tile: k * panelWidth, stride: panelWidth}
	for j := 0; j < n; j += panelWidth {
		dst := p.data[j*k : (j+panelWidth)*k]
		for i := range k {
			*(*[panelWidth]float32)(dst[i*panelWidth:]) = *(*[panelWidth]float32)(src[i*stride+j:])
		}
	}
	return p
}

// packTransposed makes panels of the transpose of the row-major n×k matrix src (rows stride apart); columns
// from n up to the next multiple of 16 are zero. The result is k×ceil16(n).
func packTransposed(buf, src []float32, stride, k, n int) panels {
	np := ceil16(n)
	p := panels{data: buf[:k*np], tile: k * panelWidth, stride: panelWidth}
	for j0 := 0; j0 < np; j0 += panelWidth {
		dst := p.data[j0*k : (j0+panelWidth)*k]
		for j := range panelWidth {
			if j0+j >= n {
				for i := range k {
					dst[i*panelWidth+j] = 0
				}
				continue
			}
			row := src[(j0+j)*stride : (j0+j)*stride+k]
			for i, v := range row {
				dst[i*panelWidth+j] = v
			}
		}
	}
	return p
}

func ceil16(n int) int { return (n + panelWidth - 1) / panelWidth * panelWidth }
