export async function plain() {}
