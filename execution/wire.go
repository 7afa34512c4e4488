package execution
import ("context";"net";"github.com/agl-go/agl")
func (c ClientServer) dial(ctx context.Context, url string) (agl.Store, func() error, error) { panic("x") }
func (c ClientServer) serve(ctx context.Context, l net.Listener, store agl.Store) (*storeServer, error) { panic("x") }
