// What the SDK takes from Node and browsers have not.

export const Buffer = { from: (bytes: Uint8Array): Uint8Array => bytes };
